"""Chapters as one HTML page, with its style, its script and all its pictures inside."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from pipeline_core.report.chapter import Chapter
from pipeline_core.report.rendering import render

_FORMATS: Final = {"pdf": "PDF", "svg": "SVG", "png": "PNG", "csv": "numbers (CSV)"}


class Part(NamedTuple):
    """A part of a chapter with a heading.

    Attributes:
        title: The heading.
        kind: The way in which the page shows it.
        content: As the chapter has it.
    """

    title: str
    kind: Literal["numbers", "table", "figures", "snippet", "limits"]
    content: object

    @property
    def place(self) -> str:
        """Name within the chapter, for links."""
        return re.sub("[^a-z]+", "-", self.title.lower())


def make_page(
    chapters: Sequence[Chapter], *, title: str, lead: str = "", folders: Mapping[str, str]
) -> str:
    """Return the page: an overview and a page of its own for each of several chapters.

    Args:
        chapters: Chapters in their order.
        title: Heading of the page.
        lead: A sentence for the overview.
        folders: Experiment -> relative path from the page to the folder of its figures, which links
            to other formats lead to; an experiment that is left out has no links.
    """
    pages = [(one, list_parts(one), folders.get(one.experiment)) for one in chapters]
    return render("page.html", title=title, lead=lead, pages=pages, formats=_FORMATS)


def list_parts(chapter: Chapter) -> list[Part]:
    """Return the parts of a chapter that have content, in the order of the page."""
    parts = [
        Part("Results", "numbers", chapter.numbers),
        *(Part(table.title, "table", table) for table in chapter.results),
        Part("Figures", "figures", chapter.illustrations),
        *(Part(table.title, "table", table) for table in chapter.tables),
        *(Part(snippet.title, "snippet", snippet) for snippet in chapter.snippets),
        Part("Limits", "limits", chapter.limits),
        Part("Provenance", "table", chapter.provenance),
    ]
    return [part for part in parts if part.content]
