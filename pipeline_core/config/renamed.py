"""Options that artifacts of earlier versions hold, under their current names."""

from __future__ import annotations

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
