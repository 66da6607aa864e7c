"""Options with another name or default in earlier versions, read with their old meaning.

A renamed option gets a line in `OPTIONS`, or in `ModelInfo.renamed` if it is a plugin's; a renamed
value of an option gets a line in `WORDS`. An option gets `Formerly` in its annotation if its
default has changed and there are artifacts that do not contain it. An option that used to be in two
sections is listed in `Section.moved`: artifacts that contain it are read without it, and
experiments with it are refused with the place where it belongs. An option that is gone is listed in
`ModelInfo.removed` with the value that all runs have now.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

logger = logging.getLogger(__name__)

_SAMPLES: Final = [1, 2, 4, 8, 16, 32]
"""Former default of `infer.workload`."""


@dataclass(frozen=True)
class RenamedOption:
    """An option that has another place now.

    Attributes:
        old: Its former keys, joined by dots.
        new: Its current keys.
        convert: From the former value to the current one.
    """

    old: str
    new: str
    convert: Callable[[Any], Any] = lambda value: value


@dataclass(frozen=True)
class RenamedWord:
    """A renamed value of an option, or of an entry of its list."""

    option: str
    old: str
    new: str


@dataclass(frozen=True)
class Formerly:
    """Former default of an option, for artifacts without it: `Annotated[bool, Formerly(False)]`.

    Attributes:
        value: Its value.
    """

    value: Any


def _read_workload(workload: dict[str, Any] | None) -> dict[str, Any]:
    return {"samples": []} if workload is None else {"samples": _SAMPLES} | workload


OPTIONS: Final = (RenamedOption("infer.workload", "profile", _read_workload),)
"""Options of the engine."""

WORDS: Final = (
    RenamedWord("partition.strategy", "paper", "mace_bins"),
    RenamedWord("profile.projection.strategies", "paper", "mace_bins"),
)
"""Values of options, under the current names of the options."""


def upgrade_options(
    sections: Mapping[str, dict[str, Any]], options: Iterable[RenamedOption], path: Path
) -> dict[str, dict[str, Any]]:
    """Return sections of an experiment with current names, and warn once of each old one.

    Args:
        sections: Sections of the file, with the overrides of a variant.
        options: Renamed options of the plugin.
        path: The file.

    Raises:
        ValueError: An option is given under both names.
    """
    content = deepcopy(dict(sections))
    for one in (*OPTIONS, *options):
        *above, key = one.old.split(".")
        holder = _find_holder(content, above)
        if holder is not None and key in holder:
            _move(content, one, holder.pop(key), path)
            _warn(path, one.old, one.new)
    for word in WORDS:
        *above, key = word.option.split(".")
        holder = _find_holder(content, above) or {}
        values = holder.get(key)
        if values == word.old or (isinstance(values, list) and word.old in values):
            is_list = isinstance(values, list)
            holder[key] = [_rename(v, word) for v in values] if is_list else word.new
            _warn(path, f"{word.option}: {word.old}", word.new)
    return content


def name_former(stored: Mapping[str, Any], section: type[BaseModel]) -> dict[str, Any]:
    """Return the options of a section that an artifact was made with, `Formerly` included."""
    former = {
        name: mark.value
        for name, field in section.model_fields.items()
        for mark in field.metadata
        if isinstance(mark, Formerly)
    }
    moved = getattr(section, "moved", {})
    return former | {name: value for name, value in stored.items() if name not in moved}


def drop_removed(
    stored: Mapping[str, Any], now: Mapping[str, Any], removed: Mapping[str, Any], section: str
) -> dict[str, Any]:
    """Return options of an artifact without those that are gone and had today's value.

    Args:
        stored: Options of a section.
        now: The section today; what is in it is kept, as an option may be gone of one choice only.
        removed: `ModelInfo.removed`.
        section: Keys of the section, joined by dots.
    """
    kept = {}
    for name, value in stored.items():
        place, today = f"{section}.{name}", now.get(name)
        if name in now or place not in removed or removed[place] != value:
            below = today if isinstance(today, dict) else {}
            nested = isinstance(value, dict)
            kept[name] = drop_removed(value, below, removed, place) if nested else value
    return kept


def _find_holder(content: dict[str, Any], keys: Iterable[str]) -> dict[str, Any] | None:
    """Return the mapping under some keys, if there is one."""
    holder: Any = content
    for key in keys:
        holder = holder.get(key) if isinstance(holder, dict) else None
    return holder if isinstance(holder, dict) else None


def _move(content: dict[str, Any], option: RenamedOption, value: Any, path: Path) -> None:
    *above, key = option.new.split(".")
    holder = content
    for part in above:
        holder = holder.setdefault(part, {})
    if holder.get(key, {}) != {}:
        raise ValueError(
            f"{path}: {option.old} is called {option.new} now, and both are given; remove "
            f"{option.old}"
        )
    holder[key] = option.convert(value)


def _rename(value: Any, word: RenamedWord) -> Any:
    return word.new if value == word.old else value


@cache
def _warn(path: Path, old: str, new: str) -> None:
    logger.warning("%s: %s is called %s now; rename it", path, old, new)
