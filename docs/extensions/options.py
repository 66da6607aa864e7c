"""The directive `options`: every option of a section, its default and its meaning.

    ```{options} chgnet
    ```

lists the options of a plugin's `model`, of the stages that it describes by itself, and of its
dataset files; `pipeline_core.config.sections:TrainOptions` in place of the name those of one
pydantic model.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from importlib import import_module
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from docutils import nodes
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from pipeline_core.cli.yaml_templates import format_scalar, read_descriptions
from pipeline_core.stages.builtin import load_registry


class Options(SphinxDirective):
    """A table a pydantic model."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the tables."""
        found: list[nodes.Node] = []
        for title, model in find_models(self.arguments[0]):
            if title:
                found.append(nodes.paragraph("", "", nodes.strong(text=title)))
            found += self.parse_text_to_nodes("\n".join(format_table(model)))
        return found


def find_models(name: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield titles and models that a name stands for."""
    if ":" in name:
        module, _, attribute = name.partition(":")
        yield "", getattr(import_module(module), attribute)
        return
    info = load_registry().get_model_info(name)
    yield "model", info.options
    yield from info.sections.items()
    if info.dataset is not None:
        yield "dataset file", info.dataset


def format_table(model: type[BaseModel]) -> list[str]:
    """Return a table in Markdown."""
    rows = list(_list_rows(model, ""))
    if not rows:
        return ["None.", ""]
    lines = ["| option | default | meaning |", "|---|---|---|"]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def _list_rows(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    descriptions = read_descriptions(model)
    for name, field in model.model_fields.items():
        text = " ".join(descriptions.get(name, "").split())
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        below = find_section(field, default)
        shown = "" if below else _format_default(field, default)
        yield f"`{prefix}{name}`", shown, _escape(_add_choices(text, field))
        if below:
            yield from _list_rows(below, f"{prefix}{name}.")


def find_section(field: FieldInfo, default: Any) -> type[BaseModel] | None:
    """Return the model of a field that is a section of its own."""
    if isinstance(default, BaseModel):
        return type(default)
    inner = field.annotation
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None


def _format_default(field: FieldInfo, default: Any) -> str:
    return "required" if field.is_required() else f"`{_escape(format_scalar(default))}`"


def _add_choices(text: str, field: FieldInfo) -> str:
    missing = [word for word in _list_choices(field.annotation) if not _names(text, word)]
    listed = ", ".join(f"`{word}`" for word in missing)
    return f"{text}{' Also: ' if text else ''}{listed}." if missing else text


def _names(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", text) is not None


def _list_choices(annotation: Any) -> Iterator[str]:
    origin = get_origin(annotation)
    if origin is Literal:
        yield from (str(value) for value in get_args(annotation))
    elif origin in (Annotated, Union, types.UnionType):
        for inner in get_args(annotation):
            yield from _list_choices(inner)


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("options", Options)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
