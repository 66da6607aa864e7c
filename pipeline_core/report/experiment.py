"""The folder of figures of an experiment: pictures, tables, its chapter, its page and an index."""

from typing import Any, Final

from pipeline_core.artifacts import store
from pipeline_core.figures import reproduction, savers
from pipeline_core.figures.drawing import choose_figures, draw_figure, encode_tables
from pipeline_core.project.run import ExperimentRun
from pipeline_core.report.chapter import write_chapter
from pipeline_core.report.figure_table import make_table
from pipeline_core.report.page import make_page
from pipeline_core.report.summary import illustrate, make_chapter

INDEX: Final = "index.json"
_SUMMARY: Final = {
    "name": "summary",
    "title": "In one minute",
    "caption": "What was run, on what data, how good it is, and how to make it again.",
    "category": "Overview",
}
_PAGE: Final = ("summary.html", "summary.json", "summary.rst")


def draw_experiment(experiment: ExperimentRun) -> dict[str, Any]:
    """Draw the chosen figures of an experiment into its folder.

    Each figure gives one file per format, its table as CSV and its caption as reStructuredText; one
    without a picture is a table of the page. All together give `index.json`, the chapter of the
    report in `summary.json`, as a page of its own in `summary.html`, `provenance.csv` and, if there
    is a paper, its numbers beside ours in `reproduction.json` and `reproduction.csv`.

    Returns:
        Names of the figures that were drawn, and of those with nothing to draw.

    Raises:
        ValueError: A figure is unknown or fails, or a file is damaged.
    """
    figures, kinds = choose_figures(experiment), [*experiment.options.formats, "webp"]
    report = reproduction.compare(experiment)
    drawn = {f: files for f in figures if (files := draw_figure(f, experiment, kinds)) is not None}
    pictures = {f: webp for f, files in drawn.items() if (webp := files.pop(f"{f.name}.webp", b""))}
    illustrations = [illustrate(f, webp, drawn[f]) for f, webp in pictures.items()]
    alone = [make_table(f, drawn[f][f"{f.name}.csv"]) for f in drawn if f not in pictures]
    chapter = make_chapter(experiment, illustrations, report)
    chapter = chapter.model_copy(update={"results": [*chapter.results, *alone]})
    page = make_page([chapter], title=chapter.experiment, folders={chapter.experiment: ""})
    files = {name: content for drawing in drawn.values() for name, content in drawing.items()}
    tables = encode_tables(experiment, report)
    files |= {"summary.html": page.encode(), "summary.rst": f"{_SUMMARY['caption']}\n".encode()}
    files |= tables
    _remove_old(experiment)
    for name, content in files.items():
        savers.write(experiment.folder / name, content)
    write_chapter(experiment.folder, chapter)
    if report is not None:
        store.write_json(experiment.reproduction, report)
    entries = [
        {**{key: getattr(f, key) for key in _SUMMARY}, "files": list(files)}
        for f, files in drawn.items()
    ]
    overview = _SUMMARY | {"files": [*_PAGE, *tables]}
    store.write_json(experiment.folder / INDEX, [overview, *entries])
    return {
        "drawn": [figure.name for figure in drawn],
        "nothing_to_draw": [figure.name for figure in figures if figure not in drawn],
    }


def _remove_old(experiment: ExperimentRun) -> None:
    """Remove the files of an earlier call, so that outdated figures do not stay."""
    path = experiment.folder / INDEX
    for entry in store.read_json(path) if path.exists() else []:
        for name in entry["files"]:
            (experiment.folder / name).unlink(missing_ok=True)
