"""Chapter of the report on an experiment, with the pictures of its figures."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from itertools import chain
from typing import Any, Final

from PIL import Image

from pipeline_core.config.experiments import BASE
from pipeline_core.figures import Figure, provenance
from pipeline_core.figures.findings import Findings, Snippet, Table
from pipeline_core.project.run import ExperimentRun
from pipeline_core.report import artifacts, card, numbers, paper, settings, story, variants
from pipeline_core.report.chapter import Chapter, Illustration

_OVERVIEW: Final = "Overview"
"""Category of figures that only the overview shows, small."""
_CATEGORIES: Final = (_OVERVIEW, "Accuracy", "Training", "Data")
"""Categories whose first figure the overview shows, by preference."""
_THUMBNAIL: Final = 480
"""Most pixels of the longer side of a small picture."""


def make_chapter(
    experiment: ExperimentRun,
    illustrations: Sequence[Illustration],
    report: Mapping[str, Any] | None,
) -> Chapter:
    """Return the chapter of the report on an experiment.

    Args:
        experiment: The experiment.
        illustrations: The drawn figures, in their order.
        report: The paper's numbers beside ours, if there is a paper.
    """
    verdict, grade = story.judge(experiment)
    facts = [[name, value] for name, value in provenance.collect_rows(experiment)]
    first, findings = _choose_first(illustrations), collect_findings(experiment)
    compared, files = variants.tabulate_variants(experiment), artifacts.tabulate_files(experiment)
    of_model = card.tabulate_card(experiment.runs[BASE])
    tables = [
        *paper.tabulate_experiment(report),
        *settings.tabulate_settings(experiment),
        of_model,
        files,
    ]
    name = experiment.experiment
    commands = f"snakemake --config experiments={name}\npipeline-core figures --experiment {name}"
    return Chapter(
        experiment=name,
        lead=_make_lead(experiment),
        verdict=verdict,
        grade=grade,
        grades=story.GRADES_EXPLAINED if grade != "unknown" else "",
        headline=story.choose_headline(experiment),
        thumbnail=_shrink(first.picture) if first else "",
        numbers=numbers.collect_numbers(experiment, findings),
        warnings=story.list_warnings(experiment, findings),
        results=[*([compared] if compared else []), *findings.tables],
        illustrations=[one for one in illustrations if one.category != _OVERVIEW],
        tables=[table for table in tables if table is not None],
        snippets=[*findings.snippets, Snippet(title="Make it again", code=commands)],
        limits=story.list_limits(experiment),
        provenance=Table(title="Provenance", rows=facts) if facts else None,
    )


def collect_findings(experiment: ExperimentRun) -> Findings:
    """Join the findings of all plugins of an experiment."""
    hook = experiment.registry.select_hook("findings", experiment.model_info.name)
    found: list[Findings] = hook(experiment=experiment)
    return Findings(
        numbers=list(chain.from_iterable(one.numbers for one in found)),
        tables=list(chain.from_iterable(one.tables for one in found)),
        warnings=list(chain.from_iterable(one.warnings for one in found)),
        snippets=list(chain.from_iterable(one.snippets for one in found)),
    )


def _make_lead(experiment: ExperimentRun) -> str:
    """Return the descriptions of the experiment and of its models."""
    several = len(experiment.models) > 1
    models = [
        f"{f'{info.name}: ' if several else ''}{info.summary.rstrip('.')} ({info.citation})."
        for info in experiment.models
    ]
    return " ".join([f"{experiment.file.description.rstrip('.')}.", *models])


def _choose_first(illustrations: Sequence[Illustration]) -> Illustration | None:
    """Return the most telling figure of an experiment."""
    by_category = {one.category: one for one in reversed(illustrations)}
    wanted = [by_category.get(category) for category in _CATEGORIES]
    return next((one for one in [*wanted, *illustrations] if one is not None), None)


def illustrate(figure: Figure, webp: bytes, files: Iterable[str]) -> Illustration:
    """Return a drawn figure as the report shows it.

    Args:
        figure: The figure.
        webp: Its picture.
        files: Names of its files.
    """
    with Image.open(BytesIO(webp)) as image:
        width, height = image.size
    return Illustration(
        name=figure.name,
        title=figure.title,
        caption=figure.caption,
        category=figure.category,
        picture=_make_address(webp),
        width=width,
        height=height,
        files=list(files),
    )


def _shrink(address: str) -> str:
    """Return the address of a small picture."""
    buffer = BytesIO()
    with Image.open(BytesIO(base64.b64decode(address.partition(",")[2]))) as image:
        image.thumbnail((_THUMBNAIL, _THUMBNAIL))
        image.save(buffer, "webp", quality=80)
    return _make_address(buffer.getvalue())


def _make_address(webp: bytes) -> str:
    return f"data:image/webp;base64,{base64.b64encode(webp).decode('ascii')}"
