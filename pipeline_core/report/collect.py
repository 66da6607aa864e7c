"""The report of a folder of results: all chapters on one page."""

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from pipeline_core.artifacts import store
from pipeline_core.report import paper
from pipeline_core.report.chapter import Chapter, read_chapter
from pipeline_core.report.page import make_page

logger = logging.getLogger(__name__)

TITLE: Final = "What was computed"


def find_figures(results: Path) -> dict[str, Path]:
    """Return experiment -> folder of its figures, for all that have been drawn."""
    return {"/".join(f.parts[-3:-1]): f for f in sorted(results.glob("*/*/figures"))}


def write_report(path: Path, figures: Mapping[str, Path]) -> None:
    """Write one page of several experiments and their papers atomically.

    A chapter that cannot be read is a warning on the page.

    Args:
        path: The page; links to the figures are relative to it.
        figures: Experiment -> folder of its figures, in the order of the page.

    Raises:
        ValueError: The page cannot be written.
    """
    chapters = [_read(name, folder) for name, folder in figures.items()]
    lead = _make_lead(chapters)
    chapters += _read_papers(figures.values())
    folders = {name: _find_way(path, folder) for name, folder in figures.items()}
    page = make_page(chapters, title=TITLE, lead=lead, folders=folders)
    with store.write_atomic(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _read(experiment: str, folder: Path) -> Chapter:
    try:
        return read_chapter(folder, experiment)
    except ValueError as error:
        logger.warning("%s", error)
        return Chapter(experiment=experiment, warnings=[str(error)])


def _read_papers(folders: Iterable[Path]) -> list[Chapter]:
    try:
        papers = paper.merge_reports(paper.read_reports(folders))
    except ValueError as error:
        logger.warning("%s", error)
        return []
    return [paper.make_chapter(plugin, report) for plugin, report in papers.items()]


def _find_way(path: Path, folder: Path) -> str:
    """Return the relative path from a page to a folder, with a slash at its end."""
    return Path(os.path.relpath(folder, path.parent)).as_posix() + "/"


def _make_lead(chapters: list[Chapter]) -> str:
    counts = [(len(chapters), "experiment"), (sum(len(c.warnings) for c in chapters), "warning")]
    counted = [f"{n or 'no'} {word}{'' if n == 1 else 's'}" for n, word in counts]
    return f"{', '.join(counted)}. Errors are mean absolute ones, on held-out samples."
