"""Drawing all figures of an experiment into its folder, with an index for the report."""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import Any, Final

from pipeline_core import store
from pipeline_core.config.yaml_files import line_of
from pipeline_core.figures import Figure, reproduction, results, savers, style, summary
from pipeline_core.run import ExperimentRun

INDEX: Final = "index.json"
_PNG: Final = "for the summary"
_SUMMARY: Final = {
    "name": "summary",
    "title": "In one minute",
    "caption": "What was run, on what data, how good it is, and how to make it again.",
    "category": "Overview",
    "files": ["summary.html", "summary.rst"],
}


def draw_experiment(experiment: ExperimentRun) -> dict[str, Any]:
    """Draw the chosen figures of an experiment into its folder.

    Each figure gives a file a format, its table as CSV and its caption as reStructuredText; all
    together give `index.json`, `summary.html` with its gist `summary.rst` and, where there is a
    paper, its numbers beside ours in `reproduction.json` and `reproduction.csv`.

    Returns:
        Names of the figures that were drawn, and of those for which there was nothing to draw.

    Raises:
        ValueError: A figure is unknown or fails, or a file is damaged.
    """
    figures = chosen(experiment)
    report = reproduction.compare(experiment)
    drawn = {f.name: files for f in figures if (files := _files(f, experiment)) is not None}
    pictures = [summary.Picture(f, drawn[f.name].pop(_PNG)) for f in figures if f.name in drawn]
    files = {
        **{name: content for drawing in drawn.values() for name, content in drawing.items()},
        "summary.html": summary.page(experiment, pictures, report).encode(),
        "summary.rst": summary.gist(experiment).encode(),
    }
    if report is not None:
        files["reproduction.csv"] = savers.table(reproduction.table(report))
    _remove_old(experiment)
    for name, content in files.items():
        savers.write(experiment.folder / name, content)
    if report is not None:
        store.write_json(experiment.reproduction, report)
    entries = [_entry(f, list(drawn[f.name])) for f in figures if f.name in drawn]
    store.write_json(experiment.folder / INDEX, [_SUMMARY, *entries])
    return {
        "drawn": list(drawn),
        "nothing_to_draw": [figure.name for figure in figures if figure.name not in drawn],
    }


def chosen(experiment: ExperimentRun) -> list[Figure]:
    """Return the figures that the experiment asks for.

    They come from the engine, the plugins of the variants and plugins without a model. A plugin's
    figure replaces the engine's of the same name; among several plugins it stands beside it, under
    the name of both, as the engine's alone shows all variants.

    Raises:
        ValueError: The experiment names a figure that there is not.
    """
    known = _known(experiment)
    names = experiment.options.names
    if names == "all":
        return list(known.values())
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            line = line_of(experiment.path, ["figures", "names"])
            raise ValueError(f"{experiment.path}:{line}: figures.names: no figure {name!r}; {hint}")
    return [figure for figure in known.values() if figure.name in names]


def _known(experiment: ExperimentRun) -> dict[str, Figure]:
    """Return all figures of an experiment by name, in the order of the report."""
    brought: dict[tuple[str | None, str], Figure] = {}
    for info in experiment.models:
        hook = experiment.project.registry.hook("figures", info.name)
        # The engine registers first, and the hook lists what registered last first.
        figures = [figure for figures in reversed(hook()) for figure in figures]
        new = {(f.plugin, f.name): f for f in figures if f.plugin in (None, info.name)}
        brought |= {key: figure for key, figure in new.items() if key not in brought}
    known: dict[str, Figure] = {}
    for plugin, name in brought:
        figure = brought[plugin, name]
        if name in known and len(experiment.models) > 1:
            figure = replace(figure, name=f"{name}_{plugin}", title=f"{figure.title} ({plugin})")
        known[figure.name] = figure
    return known


def _files(figure: Figure, experiment: ExperimentRun) -> dict[str, bytes] | None:
    """Draw one figure; return its files, and a PNG for the summary under the name `_PNG`."""
    shown = experiment if figure.plugin is None else experiment.only(figure.plugin)
    with style.applied():
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
        savers.settle(drawing)
        pictures = {kind: savers.image(drawing, kind) for kind in experiment.options.formats}
        png = pictures.get("png") or savers.image(drawing, "png")
    return {
        **{f"{figure.name}.{kind}": content for kind, content in pictures.items()},
        f"{figure.name}.csv": savers.table(rows),
        f"{figure.name}.rst": f"{figure.caption}\n".encode(),
        _PNG: png,
    }


def _entry(figure: Figure, files: list[str]) -> dict[str, Any]:
    entry = {key: getattr(figure, key) for key in ("name", "title", "caption", "category")}
    return {**entry, "files": files}


def _remove_old(experiment: ExperimentRun) -> None:
    """Remove what an earlier call drew, so that a figure no longer asked for does not stay."""
    for entry in results.read_json(experiment.folder / INDEX) or []:
        for name in entry["files"]:
            (experiment.folder / name).unlink(missing_ok=True)
