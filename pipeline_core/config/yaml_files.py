"""Safe reading of YAML, with errors that name the key and its line."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from pipeline_core.suggestions import suggest

_MOST_NODES: Final = 1_000_000
_MISREAD: Final = re.compile(r"[-+]?(0[0-9_]+|[0-9_]+(:[0-5]?[0-9])+(\.[0-9_]*)?)")
"""An octal or sexagesimal number of YAML 1.1, which is hardly ever intended."""

Model = TypeVar("Model", bound=BaseModel)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping.

    Raises:
        ValueError: The file is missing, not YAML, or not a mapping; a key is given twice; it is
            nested too deeply, or aliases make it far larger than it is written; YAML reads a word
            differently than it looks.
    """
    try:
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
        _count_nodes(node, path, {})
        content = loader.construct_document(node) if node else None
    except FileNotFoundError:
        hint = suggest(path.name, (p.name for p in path.parent.glob("*.yaml")))
        raise ValueError(f"{path}: no such file{hint}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: cannot be read as YAML: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{path}: is nested too deeply, or within itself; flatten it") from error
    if not isinstance(content, dict):
        raise ValueError(
            f"{path}: expected a mapping of keys to values, got {type(content).__name__}"
        )
    return content


def _count_nodes(node: yaml.Node | None, path: Path, counts: dict[int, int]) -> int:
    """Return the number of nodes with all aliases expanded.

    Raises:
        ValueError: They are far too many, a mapping has a key twice, or a word is misread.
    """
    if not isinstance(node, yaml.CollectionNode):
        _require_as_written(node, path)
        return 1
    if id(node) not in counts:
        children = node.value
        if isinstance(node, yaml.MappingNode):
            _require_different([key for key, _ in node.value], path)
            _require_words([key for key, _ in node.value], path)
            children = [child for pair in node.value for child in pair]
        counts[id(node)] = 1 + sum(_count_nodes(child, path, counts) for child in children)
    if counts[id(node)] > _MOST_NODES:
        raise ValueError(
            f"{path}:{node.start_mark.line + 1}: aliases expand to more than {_MOST_NODES} values; "
            "write the values out"
        )
    return counts[id(node)]


def _require_different(keys: Sequence[yaml.Node], path: Path) -> None:
    seen: dict[str, int] = {}
    for key in keys:
        if not isinstance(key, yaml.ScalarNode):
            continue
        line = key.start_mark.line + 1
        if key.value in seen:
            raise ValueError(
                f"{path}:{line}: {key.value} is given a second time, first in line "
                f"{seen[key.value]}; keep one of them"
            )
        seen[key.value] = line


def _require_as_written(node: yaml.Node | None, path: Path) -> None:
    """Refuse 010, which YAML reads as 8, and 1:30, which it reads as 90."""
    if not isinstance(node, yaml.ScalarNode) or node.style is not None:
        return
    if node.tag.endswith((":int", ":float")) and _MISREAD.fullmatch(node.value):
        raise ValueError(
            f"{path}:{node.start_mark.line + 1}: YAML reads {node.value} as "
            f"{yaml.safe_load(node.value)}; write that number, or quote it if it is a text"
        )


def _require_words(keys: Sequence[yaml.Node], path: Path) -> None:
    """Refuse keys such as no, which YAML reads as false."""
    for key in keys:
        if isinstance(key, yaml.ScalarNode) and key.tag.endswith((":bool", ":null", ":float")):
            raise ValueError(
                f"{path}:{key.start_mark.line + 1}: YAML reads the key {key.value!r} as "
                f"{yaml.safe_load(key.value)}; quote it"
            )


def validate_content(
    model: type[Model], content: dict[str, Any], path: Path, place: Sequence[str] = ()
) -> Model:
    """Validate a mapping read from `path`.

    Args:
        model: Model of the content.
        content: The mapping.
        path: The file, for messages.
        place: Keys that lead to the mapping within the file.

    Raises:
        ValueError: Lists every wrong key with its place, its line and, for a typo, the nearest
            existing key.
    """
    try:
        return model.model_validate_json(json.dumps(content))
    except TypeError as error:
        raise ValueError(
            f"{path}: {'.'.join(place) or 'the file'}: {error}; quote the value"
        ) from error
    except ValidationError as error:
        lines = [_format_error(e, model, path, place) for e in error.errors()]
        raise ValueError("\n".join(lines)) from None


def _format_error(error: Any, model: type[BaseModel], path: Path, place: Sequence[str]) -> str:
    location, owner = _follow(model, error["loc"])
    keys = [*place, *location]
    line = find_line(path, keys)
    where = f"{path}:{line}" if line else str(path)
    if error["type"] == "extra_forbidden":
        if now := getattr(owner, "moved", {}).get(keys[-1]):
            now = now if "." in now else ".".join([*keys[:-1], now])
            return (
                f"{where}: {'.'.join(keys)}: moved to {now}; delete it here, and set {now} if it "
                "is not there"
            )
        names = list(owner.model_fields) if _is_model(owner) else []
        hint = suggest(keys[-1], names, "the keys are")
        return f"{where}: {'.'.join(keys)}: unknown key{hint}"
    message = error["msg"].removeprefix("Value error, ")
    got = (
        f" (got {error['input']!r})"
        if error["type"] != "missing" and not isinstance(error["input"], dict)
        else ""
    )
    return f"{where}: {'.'.join(keys) or 'the file'}: {message}{got}"


def _follow(model: type[BaseModel], location: Sequence[int | str]) -> tuple[list[str], Any]:
    """Return the keys of a location in the file, and the type that holds the last one.

    A location of pydantic names the member of a discriminated union, which is not a key of the
    file.
    """
    keys: list[str] = []
    current: Any = model
    owner: Any = model
    for step in location:
        members = [m for m in get_args(current) if _is_model(m)]
        tagged = [member for member in members if _has_tag(member, step)]
        if tagged:
            current = tagged[0]
            continue
        keys.append(str(step))
        is_union = get_origin(current) in (Union, UnionType)
        owner = members[0] if is_union and members else current
        current = _find_type(owner, step)
    return keys, owner


def _find_type(current: Any, step: int | str) -> Any:
    if _is_model(current):
        field = current.model_fields.get(str(step))
        return field.annotation if field else None
    element = get_args(current)[-1] if get_origin(current) in (dict, list) else None
    return get_args(element)[0] if get_origin(element) is Annotated else element


def _has_tag(model: type[BaseModel], tag: int | str) -> bool:
    """Return True if a field of a model is the literal `tag`."""
    types = (field.annotation for field in model.model_fields.values())
    return any(get_origin(one) is Literal and get_args(one) == (tag,) for one in types)


def _is_model(candidate: Any) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, BaseModel)


def find_line(path: Path, keys: Sequence[str]) -> int | None:
    """Return the line of the innermost of `keys` that is in the file, from 1."""
    node = (
        yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        if path.exists()
        else None
    )
    line = None
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            match = next(((k, v) for k, v in node.value if k.value == key), None)
            if match is None:
                break
            line, node = match[0].start_mark.line + 1, match[1]
        elif isinstance(node, yaml.SequenceNode) and key.isdigit() and int(key) < len(node.value):
            node = node.value[int(key)]
            line = node.start_mark.line + 1
    return line
