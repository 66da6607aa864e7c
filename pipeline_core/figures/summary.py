"""Chapter of the report on an experiment, with the pictures of its figures."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

from PIL import Image

from pipeline_core.config.experiments import BASE
from pipeline_core.figures import (
    Figure,
    artifacts,
    card,
    numbers,
    provenance,
    settings,
    story,
    variants,
)
from pipeline_core.figures.findings import collect_findings
from pipeline_core.project.run import ExperimentRun
from pipeline_core.report import paper
from pipeline_core.report.chapter import Chapter, Illustration, Snippet, Table
from pipeline_core.report.page import make_page

_SHOWN_OTHERWISE: Final = ("parity_forces",)
"""Figures with a content that the page shows in another figure."""
_FIRST: Final = ("parity_forces", "parity")
"""Figures for the overview, by preference."""
_CATEGORIES: Final = ("Accuracy", "Training", "Data")
"""Categories whose first figure the overview shows instead."""
_THUMBNAIL: Final = 480
"""Most pixels of the longer side of a small picture."""


@dataclass(frozen=True)
class Picture:
    """A drawn figure.

    Attributes:
        figure: Its definition.
        webp: The picture, lossless.
        files: Names of its files.
    """

    figure: Figure
    webp: bytes
    files: Sequence[str] = ()


def encode_picture(png: bytes) -> bytes:
    """Return a picture as the report embeds it, lossless in fewer bytes."""
    encoded = BytesIO()
    # The quality is the effort, in per cent.
    Image.open(BytesIO(png)).save(encoded, "webp", lossless=True, quality=20)
    return encoded.getvalue()


def make_summary(experiment: ExperimentRun, chapter: Chapter) -> str:
    """Return a page of the experiment alone, for the folder of its figures."""
    folders = {experiment.experiment: ""}
    return make_page([chapter], title=experiment.experiment, folders=folders)


def make_chapter(
    experiment: ExperimentRun, pictures: Sequence[Picture], report: Mapping[str, Any] | None
) -> Chapter:
    """Return the chapter of the report on an experiment.

    Args:
        experiment: The experiment.
        pictures: The drawn figures, in their order.
        report: The paper's numbers beside ours, if there is a paper.
    """
    verdict, grade = story.judge(experiment)
    facts = [[name, value] for name, value in provenance.collect_rows(experiment)]
    first, findings = _choose_first(pictures), collect_findings(experiment)
    compared, files = variants.tabulate_variants(experiment), artifacts.tabulate_files(experiment)
    of_model = card.tabulate_card(experiment.runs[BASE])
    tables = [*_compare(report), *settings.tabulate_settings(experiment), of_model, files]
    commands = "\n".join(story.list_commands(experiment))
    snippets = [artifacts.write_snippet(experiment), Snippet(title="Make it again", code=commands)]
    return Chapter(
        experiment=experiment.experiment,
        lead=_make_lead(experiment),
        verdict=verdict,
        grade=grade,
        grades=story.GRADES_EXPLAINED if grade != "unknown" else "",
        headline=story.choose_headline(experiment),
        thumbnail=_shrink(first.webp) if first else "",
        numbers=numbers.collect_numbers(experiment, findings),
        warnings=story.list_warnings(experiment, findings),
        results=[
            *([compared] if compared else []),
            *findings.tables,
        ],
        illustrations=[_illustrate(p) for p in pictures if p.figure.name not in _SHOWN_OTHERWISE],
        tables=[table for table in tables if table is not None],
        snippets=[snippet for snippet in snippets if snippet is not None],
        limits=story.list_limits(experiment),
        provenance=Table(title="Provenance", rows=facts) if facts else None,
    )


def _make_lead(experiment: ExperimentRun) -> str:
    """Return the descriptions of the experiment and of its models."""
    several = len(experiment.models) > 1
    models = [
        f"{f'{info.name}: ' if several else ''}{info.summary.rstrip('.')} ({info.citation})."
        for info in experiment.models
    ]
    return " ".join([f"{experiment.file.description.rstrip('.')}.", *models])


def _choose_first(pictures: Sequence[Picture]) -> Picture | None:
    """Return the most telling picture of an experiment."""
    by_name = {picture.figure.name: picture for picture in pictures}
    by_category = {p.figure.category: p for p in reversed(pictures)}
    wanted = [by_name.get(name) for name in _FIRST] + [by_category.get(c) for c in _CATEGORIES]
    return next((picture for picture in [*wanted, *pictures] if picture is not None), None)


def _shrink(webp: bytes) -> str:
    with Image.open(BytesIO(webp)) as image:
        image.thumbnail((_THUMBNAIL, _THUMBNAIL))
        buffer = BytesIO()
        image.save(buffer, "webp", quality=80)
    return _make_address(buffer.getvalue())


def _illustrate(picture: Picture) -> Illustration:
    figure = picture.figure
    with Image.open(BytesIO(picture.webp)) as image:
        width, height = image.size
    return Illustration(
        name=figure.name,
        title=figure.title,
        caption=figure.caption,
        category=figure.category,
        picture=_make_address(picture.webp),
        width=width,
        height=height,
        files=list(picture.files),
    )


def _make_address(webp: bytes) -> str:
    return f"data:image/webp;base64,{base64.b64encode(webp).decode('ascii')}"


def _compare(report: Mapping[str, Any] | None) -> list[Table]:
    """Return tables of the paper's numbers beside ours, and of reasons for missing ones.

    Empty if no number has a counterpart in this experiment.
    """
    entries = report["entries"] if report else []
    rows = [r for r in entries if r["ours"] is not None]
    if report is None or not rows:
        return []
    left = [r for r in entries if r["status"] == paper.NOT_ATTEMPTED]
    elsewhere = Counter(r["experiment"] for r in entries if r["status"] == paper.ELSEWHERE)
    note = f"{report['paper']}. {len(rows)} of its {len(entries)} numbers have ours beside them."
    reasons = Counter(r["differs"] for r in left)
    tables = [
        Table(
            title="The paper's numbers beside ours",
            header=list(paper.HEADER),
            rows=[paper.format_row(row) for row in rows],
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
