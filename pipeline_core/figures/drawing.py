"""Figures of an experiment: their choice from the engine and its plugins, and their files."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline_core.config.yaml_files import find_line
from pipeline_core.figures import Figure, provenance, reproduction, savers, style, tabulate
from pipeline_core.figures.expected import is_of_paper
from pipeline_core.project.run import ExperimentRun
from pipeline_core.suggestions import suggest


def draw_compared(experiment: ExperimentRun) -> dict[str, str]:
    """Draw the files by which figures are compared, without writing them.

    Returns:
        Texts of the files with numbers and lines, by their names: tables, pictures as SVG if
        `figures.formats` has it, and the paper's numbers beside ours.
    """
    kinds = [kind for kind in experiment.options.formats if kind == "svg"]
    files: dict[str, bytes] = {}
    for figure in choose_figures(experiment):
        files |= draw_figure(figure, experiment, kinds) or {}
    report = reproduction.compare(experiment)
    files |= encode_tables(experiment, report)
    texts = {name: content.decode() for name, content in files.items() if not name.endswith(".rst")}
    if report is not None:
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


def draw_figure(
    figure: Figure, experiment: ExperimentRun, kinds: Sequence[str]
) -> dict[str, bytes] | None:
    """Draw a figure.

    Args:
        figure: One of `choose_figures`.
        experiment: The experiment.
        kinds: Formats of the picture: "png", "svg", "pdf" or "webp".

    Returns:
        The files by name: a picture of each kind, unless it is a table, the table as CSV and the
        caption as reStructuredText; None if there is nothing to draw.

    Raises:
        ValueError: The figure fails, or a file is damaged.
    """
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
        if drawing is None and not rows:
            return None
        pictures = savers.encode_pictures(drawing, kinds) if drawing is not None else {}
    return {
        **{f"{figure.name}.{kind}": content for kind, content in pictures.items()},
        f"{figure.name}.csv": savers.encode_table(rows),
        f"{figure.name}.rst": f"{figure.caption}\n".encode(),
    }


def encode_tables(experiment: ExperimentRun, report: Mapping[str, Any] | None) -> dict[str, bytes]:
    """Return provenance and the paper's numbers beside ours as CSV, by file name."""
    facts = provenance.collect_rows(experiment)
    tables = {"provenance.csv": tabulate({"what": what, "value": value} for what, value in facts)}
    if report is not None:
        tables["reproduction.csv"] = tabulate(report["entries"])
    return {name: savers.encode_table(rows) for name, rows in tables.items()}
