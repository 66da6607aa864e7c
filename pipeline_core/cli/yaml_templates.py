"""YAML with every option, its default and its description, from the models that validate it."""

import ast
import inspect
import textwrap
from collections.abc import Container, Mapping
from itertools import pairwise
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

_WIDTH = 100


def format_section(
    model: type[BaseModel],
    values: Mapping[str, Any] | None = None,
    indent: int = 0,
    skip: Container[str] = (),
) -> list[str]:
    """Return the lines of a section: each key after its description, with its default.

    Args:
        model: Model of the section.
        values: Values other than defaults; nested sections as mappings.
        indent: Spaces before each line.
        skip: Keys to leave out.
    """
    values = values or {}
    pad = " " * indent
    lines, descriptions = [], read_descriptions(model)
    for name, field in model.model_fields.items():
        if name in skip:
            continue
        lines += format_comment(descriptions.get(name, ""), indent)
        default = field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            below = {**default.model_dump(mode="json"), **values.get(name, {})}
            lines += [f"{pad}{name}:", *format_section(type(default), below, indent + 2)]
        elif name in values or not field.is_required():
            lines.append(f"{pad}{name}: {format_scalar(values.get(name, default))}")
        else:
            lines.append(f"{pad}# {name}: required, has no default")
    return lines


def read_descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return the text below each field in the source of a model.

    It is read here, not by pydantic (`use_attribute_docstrings`) whenever a command starts.
    """
    descriptions = {}
    for base in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        tree = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(tree, ast.ClassDef)
        for field, text in pairwise(tree.body):
            match field, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(description))),
                ):
                    descriptions[name] = description
    return descriptions


def format_comment(text: str, indent: int = 0) -> list[str]:
    """Return text as comment lines."""
    pad = " " * indent
    return [f"{pad}# {line}" for line in textwrap.wrap(" ".join(text.split()), _WIDTH - indent - 2)]


def format_scalar(value: Any) -> str:
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(
        to_jsonable_python(value),
        default_flow_style=True,
        width=10_000,
        allow_unicode=True,
        sort_keys=False,
    )
    return text.removesuffix("\n").removesuffix("\n...")
