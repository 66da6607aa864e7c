"""Numbers of papers beside ours, each from whichever experiment has it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pipeline_core.artifacts import store
from pipeline_core.figures.findings import Number, Table
from pipeline_core.figures.formats import format_number
from pipeline_core.figures.reproduction import (
    ELSEWHERE,
    HEADER,
    INPUT,
    NOT_ATTEMPTED,
    NOT_RUN,
    format_row,
)
from pipeline_core.report.chapter import Chapter

NAME: Final = "reproduction.json"
_WHOLE: Final = (
    *("where", "quantity", "paper", "ours", "ours / paper", "status", "experiment"),
    "what differs",
)


def read_reports(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the comparisons of experiments with the numbers of their papers.

    Args:
        folders: Folders of their figures; experiments without a paper, or with a plugin that
            compares in its own way, are skipped.

    Raises:
        ValueError: A file is damaged, or of an older version.
    """
    contents = {path: store.read_json(path) for f in folders if (path := f / NAME).is_file()}
    reports = {p: one for p, one in contents.items() if isinstance(one, dict) and "entries" in one}
    for path, report in reports.items():
        if not all("experiment" in row for row in report["entries"]):
            raise ValueError(
                f"{path}: of an older version; draw it again: pipeline-core figures --experiment "
                f"{'/'.join(path.parts[-4:-2])}"
            )
    return list(reports.values())


def merge_reports(reports: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Put the reports of the experiments of each paper together.

    Args:
        reports: Contents of `reproduction.json` of the experiments.

    Returns:
        Plugin -> a report with the row of each number from the experiment that has it; papers
        without any number of ours are left out.
    """
    by_plugin: dict[str, list[Mapping[str, Any]]] = {}
    for report in reports:
        by_plugin.setdefault(report["experiment"].partition("/")[0], []).append(report)
    merged = {plugin: merge_report(several) for plugin, several in by_plugin.items()}
    return {plugin: one for plugin, one in merged.items() if any(map(is_result, one["entries"]))}


def is_result(row: Mapping[str, Any]) -> bool:
    """Return True if a row has a result of ours; inputs of projections are the paper's own."""
    return row["ours"] is not None and row["status"] != INPUT


def merge_report(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the report of one paper, in which no number belongs to another experiment."""
    ours = {row["id"]: row for one in reports for row in one["entries"] if row["ours"] is not None}
    entries = [dict(ours.get(row["id"], row)) for row in reports[-1]["entries"]]
    for row in entries:
        row["status"] = NOT_RUN if row["status"] == ELSEWHERE else row["status"]
    counts = Counter(row["status"] for row in entries)
    return {**reports[-1], "counts": dict(counts), "entries": entries}


def format_counts(report: Mapping[str, Any]) -> str:
    """Return the count of numbers of each status, in a sentence."""
    counts = report["counts"]
    listed = [f"{counts[name]} {name}" for name in sorted(counts, key=lambda n: -counts[n])]
    n_ours = sum(map(is_result, report["entries"]))
    total = len(report["entries"])
    return f"{n_ours} of {total} numbers have ours beside them: {', '.join(listed)}."


def make_tables(report: Mapping[str, Any]) -> list[Table]:
    """Return tables of the numbers with ours beside them, and of the others with the reason."""
    ours = [row for row in report["entries"] if is_result(row)]
    left = [row for row in report["entries"] if not is_result(row)]
    usual = _find_usual(ours)
    tables = [
        Table(
            title="The paper's numbers beside ours",
            header=list(_WHOLE),
            rows=[_format_whole(row, usual) for row in ours],
            note=f"{'. '.join(usual)}, where no row says otherwise.",
        ),
        Table(
            title="Without ours",
            header=["where", "quantity", "paper", "status", "why"],
            rows=[_format_left(row) for row in left],
        ),
    ]
    return [table for table in tables if table.rows]


def _find_usual(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the most common scale and hardware: the paper's, then ours."""
    pairs = zip(*map(_describe_sides, rows), strict=True)
    return [Counter(side).most_common(1)[0][0] for side in pairs]


def _describe_sides(row: Mapping[str, Any]) -> tuple[str, str]:
    machine = row["our_hardware"] or "hardware unknown"
    return (
        f"The paper: {row['paper_scale']}; {row['paper_hardware']}",
        f"Ours: {row['our_scale']}; {machine}",
    )


def _format_whole(row: Mapping[str, Any], usual: Sequence[str]) -> list[str]:
    *cells, status, differs = format_row(row)
    others = [side for side in _describe_sides(row) if side not in usual]
    remarks = ". ".join([differs.removesuffix("."), *others]) + "."
    return [*cells, format_number(row["ratio"]), status, row["experiment"], remarks]


def _format_left(row: Mapping[str, Any]) -> list[str]:
    *cells, _, status, differs = format_row(row)
    return [*cells, status, f"by {row['experiment']}" if status == NOT_RUN else differs]


def make_chapter(plugin: str, report: Mapping[str, Any]) -> Chapter:
    """Return the chapter of a paper.

    Args:
        plugin: Name of the plugin that builds its system.
        report: One of `merge_reports`.
    """
    n_ours = sum(map(is_result, report["entries"]))
    title = f"of the paper's {len(report['entries'])} numbers have ours beside them"
    return Chapter(
        experiment=f"{plugin} and its paper",
        lead=f"{report['paper']}. {report['citation']}",
        verdict=format_counts(report),
        headline=Number(title=title, value=str(n_ours)),
        results=make_tables(report),
    )


def tabulate_experiment(report: Mapping[str, Any] | None) -> list[Table]:
    """Return tables of the paper's numbers beside ours, and of reasons for missing ones.

    Empty if no number has a counterpart in this experiment.
    """
    entries = report["entries"] if report else []
    rows = [r for r in entries if r["ours"] is not None]
    if report is None or not rows:
        return []
    left = [r for r in entries if r["status"] == NOT_ATTEMPTED]
    elsewhere = Counter(r["experiment"] for r in entries if r["status"] == ELSEWHERE)
    note = f"{report['paper']}. {len(rows)} of its {len(entries)} numbers have ours beside them."
    reasons = Counter(r["differs"] for r in left)
    tables = [
        Table(
            title="The paper's numbers beside ours",
            header=list(HEADER),
            rows=[format_row(row) for row in rows],
            note=note,
        ),
        Table(
            title="Compared in other experiments",
            header=["numbers", "experiment"],
            rows=[[str(n), name] for name, n in elsewhere.most_common()],
        ),
        Table(
            title="Not attempted",
            header=["numbers", "why not"],
            rows=[[str(n), why] for why, n in reasons.most_common()],
        ),
    ]
    return [table for table in tables if table.rows]
