"""Drawing all figures of an experiment into its folder, with an index for the report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from pipeline_core.artifacts import store
from pipeline_core.config.yaml_files import find_line
from pipeline_core.figures import Figure, reproduction, results, savers, style, summary
from pipeline_core.figures.expected import is_of_paper
from pipeline_core.project.run import ExperimentRun
from pipeline_core.report.chapter import write_chapter
from pipeline_core.suggestions import suggest

INDEX: Final = "index.json"
_WEBP: Final = "for the report"
_SUMMARY: Final = {
    "name": "summary",
    "title": "In one minute",
    "caption": "What was run, on what data, how good it is, and how to make it again.",
    "category": "Overview",
    "files": ["summary.html", "summary.json", "summary.rst"],
}


def draw_experiment(experiment: ExperimentRun) -> dict[str, Any]:
    """Draw the chosen figures of an experiment into its folder.

    Each figure gives one file per format, its table as CSV and its caption as reStructuredText. All
    together give `index.json`, the chapter of the report in `summary.json`, as a page of its own in
    `summary.html` and, if there is a paper, its numbers beside ours in `reproduction.json` and
    `reproduction.csv`.

    Returns:
        Names of the figures that were drawn, and of those with nothing to draw.

    Raises:
        ValueError: A figure is unknown or fails, or a file is damaged.
    """
    figures, kinds = choose_figures(experiment), experiment.options.formats
    report = reproduction.compare(experiment)
    drawn = {
        f.name: files
        for f in figures
        if (files := _draw_files(f, experiment, kinds, for_report=True)) is not None
    }
    pictures = [
        summary.Picture(f, drawn[f.name].pop(_WEBP), list(drawn[f.name]))
        for f in figures
        if f.name in drawn
    ]
    chapter = summary.make_chapter(experiment, pictures, report)
    files = {
        **{name: content for drawing in drawn.values() for name, content in drawing.items()},
        "summary.html": summary.make_summary(experiment, chapter).encode(),
        "summary.rst": f"{_SUMMARY['caption']}\n".encode(),
    }
    if report is not None:
        files["reproduction.csv"] = savers.encode_table(reproduction.make_table(report))
    _remove_old(experiment)
    for name, content in files.items():
        savers.write(experiment.folder / name, content)
    write_chapter(experiment.folder, chapter)
    if report is not None:
        store.write_json(experiment.reproduction, report)
    entries = [_make_entry(f, list(drawn[f.name])) for f in figures if f.name in drawn]
    store.write_json(experiment.folder / INDEX, [_SUMMARY, *entries])
    return {
        "drawn": list(drawn),
        "nothing_to_draw": [figure.name for figure in figures if figure.name not in drawn],
    }


def draw_compared(experiment: ExperimentRun) -> dict[str, str]:
    """Draw the files by which figures are compared, without writing them.

    Returns:
        Texts of the files of `draw_experiment` with numbers and lines, by their names: tables,
        pictures as SVG if `figures.formats` has it, and the paper's numbers beside ours.
    """
    kinds = [kind for kind in experiment.options.formats if kind == "svg"]
    files: dict[str, bytes] = {}
    for figure in choose_figures(experiment):
        files |= _draw_files(figure, experiment, kinds, for_report=False) or {}
    texts = {name: content.decode() for name, content in files.items() if not name.endswith(".rst")}
    report = reproduction.compare(experiment)
    if report is not None:
        texts["reproduction.csv"] = savers.encode_table(reproduction.make_table(report)).decode()
        texts[experiment.reproduction.name] = json.dumps(report)
    return texts


def choose_figures(experiment: ExperimentRun) -> list[Figure]:
    """Return the figures of an experiment.

    They come from the engine, the plugins of the variants and plugins without a model. A plugin's
    figure replaces the engine's of the same name; with several plugins it is added, with the
    plugin's name appended, as the engine's figure alone shows all variants. Figures of a paper are
    only for its experiments, and for those that name them.

    Raises:
        ValueError: The experiment names an unknown figure, or the paper's file is wrong.
    """
    figures = _list_figures(experiment)
    names = experiment.options.names
    if names == "all":
        return [f for f in figures.values() if not f.paper or is_of_paper(experiment, f.plugin)]
    for name in names:
        if name not in figures:
            hint = suggest(name, figures, "there are")
            line = find_line(experiment.path, ["figures", "names"])
            raise ValueError(f"{experiment.path}:{line}: figures.names: no figure {name!r}{hint}")
    return [figure for figure in figures.values() if figure.name in names]


def _list_figures(experiment: ExperimentRun) -> dict[str, Figure]:
    """Return all figures of an experiment by name, in the order of the report."""
    shared = _collect(experiment, None)
    listed: dict[tuple[str | None, str], Figure] = {}
    for info in experiment.models:
        figures = [
            figure if figure in shared else replace(figure, plugin=info.name)
            for figure in _collect(experiment, info.name)
        ]
        new = {(f.plugin, f.name): f for f in figures if f.plugin in (None, info.name)}
        listed |= {key: figure for key, figure in new.items() if key not in listed}
    by_name: dict[str, Figure] = {}
    for (plugin, name), figure in listed.items():
        several = name in by_name and len(experiment.models) > 1
        title = f"{figure.title} ({plugin})"
        chosen = replace(figure, name=f"{name}_{plugin}", title=title) if several else figure
        by_name[chosen.name] = chosen
    return by_name


def _collect(experiment: ExperimentRun, model: str | None) -> list[Figure]:
    """Return the figures of the plugin of a model and of all plugins without one."""
    hook = experiment.registry.select_hook("figures", model)
    # The engine registers first, and the hook lists the last registered first.
    return [figure for figures in reversed(hook(model=model)) for figure in figures]


def _draw_files(
    figure: Figure, experiment: ExperimentRun, kinds: Sequence[str], *, for_report: bool
) -> dict[str, bytes] | None:
    """Draw one figure; return its files, and a picture for the report under the name `_WEBP`."""
    shown = experiment if figure.plugin is None else experiment.select_plugin(figure.plugin)
    with style.apply_style():
        try:
            drawn = figure.draw(shown)
        except Exception as error:
            cause = error if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise ValueError(
                f"figure {figure.name!r} of {experiment.experiment}: {cause}; its inputs are in "
                f"{experiment.folder.parent}"
            ) from error
        if drawn is None:
            return None
        drawing, rows = drawn
        savers.settle_layout(drawing)
        pictures = {kind: savers.encode_image(drawing, kind) for kind in kinds}
        webp = {_WEBP: summary.encode_picture(drawing)} if for_report else {}
    return {
        **{f"{figure.name}.{kind}": content for kind, content in pictures.items()},
        f"{figure.name}.csv": savers.encode_table(rows),
        f"{figure.name}.rst": f"{figure.caption}\n".encode(),
        **webp,
    }


def _make_entry(figure: Figure, files: list[str]) -> dict[str, Any]:
    entry = {key: getattr(figure, key) for key in ("name", "title", "caption", "category")}
    return {**entry, "files": files}


def _remove_old(experiment: ExperimentRun) -> None:
    """Remove the files of an earlier call, so that outdated figures do not stay."""
    for entry in results.read_json(experiment.folder / INDEX) or []:
        for name in entry["files"]:
            (experiment.folder / name).unlink(missing_ok=True)
