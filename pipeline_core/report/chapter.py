"""The chapter of an experiment: plain data, in `summary.json` beside its figures."""

from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from pipeline_core.artifacts import store
from pipeline_core.figures.findings import Number, Part, Snippet, Table

NAME: Final = "summary.json"


class Illustration(Part):
    """A figure as the report shows it."""

    name: str
    title: str
    caption: str = ""
    category: str
    picture: str
    """The address of the picture, with all its bytes: data:image/webp;base64,..."""
    width: int
    """Pixels."""
    height: int
    files: list[str] = []
    """Names of the files that lie beside `summary.json`: other formats, and the numbers as CSV."""


class Chapter(Part):
    """An experiment in the report."""

    experiment: str
    lead: str = ""
    """The experiment in a sentence or two."""
    verdict: str = ""
    grade: Literal["small", "moderate", "large", "unknown"] = "unknown"
    """Size of the error that the verdict names."""
    grades: str = ""
    """Meaning of the grades; empty if there is none."""
    headline: Number | None = None
    """The one number that the overview shows."""
    thumbnail: str = ""
    """The one picture that the overview shows: the address of a small one, or empty."""
    numbers: list[Number] = []
    warnings: list[str] = []
    results: list[Table] = []
    """Tables that stand before the figures."""
    illustrations: list[Illustration] = []
    tables: list[Table] = []
    """Tables that stand after the figures."""
    snippets: list[Snippet] = []
    limits: list[str] = []
    provenance: Table | None = None


def write_chapter(folder: Path, chapter: Chapter) -> None:
    """Write a chapter into the folder of the figures of its experiment.

    Raises:
        ValueError: The folder cannot be written.
    """
    store.write_json(folder / NAME, chapter.model_dump(mode="json"))


def read_chapter(folder: Path, experiment: str) -> Chapter:
    """Read the chapter of an experiment from the folder of its figures.

    Without a file, because a plugin draws all figures itself, the chapter names their folder.

    Raises:
        ValueError: The file is damaged, or of another version.
    """
    path = folder / NAME
    if not path.exists():
        warning = f"There is no {NAME}: what the plugin has drawn lies in {folder}."
        return Chapter(experiment=experiment, warnings=[warning])
    content: Any = store.read_json(path)
    try:
        return Chapter.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(
            f"{path}: of another version ({place}: {first['msg']}); draw it again: "
            f"pipeline-core figures --experiment {experiment}"
        ) from None
