"""Pages from the templates beside this file: HTML, with all values escaped, and Markdown."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape


def render(template: str, **content: Any) -> str:
    """Return a page.

    Args:
        template: Name of a file in `templates`.
        **content: Values of its variables.
    """
    return _load_templates().get_template(template).render(content)


@cache
def _load_templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["format_cell"] = _format_cell
    return environment


def _format_cell(text: str) -> str:
    """Return the text of a cell of a table in Markdown, on one line."""
    return " ".join(text.split()).replace("|", "\\|")
