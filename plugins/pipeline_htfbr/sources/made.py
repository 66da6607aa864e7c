"""What a source gives before it is checked and divided."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline_htfbr.points import Points


def _count_in_words(i: int) -> str:
    return f"point {i}"


@dataclass(frozen=True, kw_only=True)
class Made:
    """Points with what is known of their making.

    Attributes:
        points: The points, all in no split (-1).
        facts: What the report says of the source, JSON-able.
        inputs: SHA-256 of the raw files by their names.
        versions: Versions of packages that the points depend on, beyond those of the engine.
        place: Says in words where a point stands, by its number.
    """

    points: Points
    facts: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    place: Callable[[int], str] = _count_in_words
