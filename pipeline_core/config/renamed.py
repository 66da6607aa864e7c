"""Options that artifacts of earlier versions hold, under their current names."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel


def upgrade_options(stored: Mapping[str, Any], section: type[BaseModel]) -> dict[str, Any]:
    """Return options of an artifact as the current version would have stored them.

    Options in `Section.moved` get their new names, or are left out where another section has them
    now; absent ones get their values in `Section.formerly`.

    Args:
        stored: Options of a section in an artifact.
        section: The section as it is now.
    """
    moved, formerly = getattr(section, "moved", {}), getattr(section, "formerly", {})
    named = {moved.get(name, name): value for name, value in stored.items()}
    return {**formerly, **{name: value for name, value in named.items() if "." not in name}}


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
            kept[name] = _drop_below(value, today, removed, place)
    return kept


def _drop_below(stored: Any, now: Any, removed: Mapping[str, Any], place: str) -> Any:
    """Return a value without removed options; entries of a list have the place of the list."""
    if isinstance(stored, dict):
        return drop_removed(stored, now if isinstance(now, dict) else {}, removed, place)
    if isinstance(stored, list) and isinstance(now, list) and len(stored) == len(now):
        pairs = zip(stored, now, strict=True)
        return [_drop_below(ours, theirs, removed, place) for ours, theirs in pairs]
    return stored
