"""The page that a reader understands in a minute: HTML in one file, and its gist for the report."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final

from pipeline_core.figures import Figure, provenance, reproduction, story
from pipeline_core.run import ExperimentRun

_TEMPLATE: Final = Path(__file__).with_name("summary.html.tmpl")
_TOLD_OTHERWISE: Final = ("parity_forces", "reproduction", "provenance")
"""Pictures of what the page shows in another picture or as a table."""
_WIDE: Final = 900
"""Pixels beyond which a picture has a row of its own."""


@dataclass(frozen=True)
class Picture:
    """A drawn figure.

    Attributes:
        figure: What it is.
        png: The picture.
    """

    figure: Figure
    png: bytes

    @property
    def width(self) -> int:
        """Pixels."""
        return int.from_bytes(self.png[16:20])  # of the header that every PNG begins with


def make_page(
    experiment: ExperimentRun, pictures: Sequence[Picture], report: Mapping[str, Any] | None
) -> str:
    """Return the page.

    Args:
        experiment: What was run.
        pictures: The drawn figures, in their order.
        report: The paper's numbers beside ours, if there is a paper.
    """
    text, grade = story.judge(experiment)
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(experiment.experiment),
        lead=escape(_make_lead(experiment)),
        verdict=escape(text),
        grade=grade,
        explained=escape(story.GRADES_EXPLAINED) if grade != "unknown" else "",
        numbers="".join(_format_number(number) for number in story.collect_numbers(experiment)),
        variants=_format_section("All variants", story.tabulate_variants(experiment)),
        reproduction=_format_reproduction(report),
        pictures="".join(
            _format_picture(p) for p in pictures if p.figure.name not in _TOLD_OTHERWISE
        ),
        commands=escape("\n".join(story.list_commands(experiment))),
        limits="".join(f"<li>{escape(limit)}</li>" for limit in story.list_limits(experiment)),
        provenance=_format_table(
            [[name, value] for name, value in provenance.collect_rows(experiment)]
        ),
    )


def _make_lead(experiment: ExperimentRun) -> str:
    """Return what was run, and what each model is."""
    several = len(experiment.models) > 1
    models = [
        f"{f'{info.name}: ' if several else ''}{info.summary.rstrip('.')} ({info.citation})."
        for info in experiment.models
    ]
    return " ".join([f"{experiment.file.description.rstrip('.')}.", *models])


def make_gist(experiment: ExperimentRun) -> str:
    """Return the story as reStructuredText, for the first page of Snakemake's report."""
    title, told = experiment.experiment, " ".join(story.write_sentences(experiment))
    lines = [title, "-" * len(title), "", _escape(told), ""]
    for number in story.collect_numbers(experiment):
        note = f" ({number.note})" if number.note else ""
        lines.append(f"- {_escape(number.title)}: {_escape(number.value + note)}")
    return "\n".join([*lines, ""])


def _escape(text: str) -> str:
    """Return text in which reStructuredText sees no markup."""
    for mark in "\\*`|_":
        text = text.replace(mark, f"\\{mark}")
    return text


def _format_number(number: story.Number) -> str:
    return (
        f'<div class="number"><h3>{escape(number.title)}</h3>'
        f"<strong>{escape(number.value)}</strong>"
        f'<span class="note">{escape(number.note)}</span></div>'
    )


def _format_section(title: str, rows: Sequence[Sequence[str]], note: str = "") -> str:
    if not rows:
        return ""
    text = f'<p class="note">{escape(note)}</p>' if note else ""
    return f"<h2>{escape(title)}</h2>{text}{_format_table(rows[1:], rows[0])}"


def _format_table(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table>{f'<tr>{head}</tr>' if head else ''}{body}</table>"


def _format_reproduction(report: Mapping[str, Any] | None) -> str:
    if report is None:
        return ""
    rows = [r for r in report["entries"] if r["status"] != reproduction.NOT_ATTEMPTED]
    left = len(report["entries"]) - len(rows)
    total = len(report["entries"])
    note = f"{report['paper']}. {left} of its {total} numbers have no counterpart here."
    if not rows:
        return f'<h2>The paper\'s numbers beside ours</h2><p class="note">{escape(note)}</p>'
    table = [reproduction.HEADER, *(reproduction.format_row(row) for row in rows)]
    reasons = Counter(r["differs"] for r in report["entries"] if r not in rows)
    others = [["numbers", "why not"], *([str(n), why] for why, n in reasons.most_common())]
    return _format_section("The paper's numbers beside ours", table, note) + _format_section(
        "Not attempted", others if reasons else []
    )


def _format_picture(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode("ascii")
    wide = ' class="wide"' if picture.width > _WIDE else ""
    title, caption = escape(picture.figure.title), escape(picture.figure.caption)
    return (
        f'<figure{wide}><img alt="{title}" src="data:image/png;base64,{data}">'
        f"<figcaption><b>{title}</b>{caption}</figcaption></figure>"
    )
