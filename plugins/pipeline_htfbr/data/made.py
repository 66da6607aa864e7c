"""Result of a source before it is checked and split."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline_htfbr.data.points import Points


def _count_in_words(i: int) -> str:
    return f"point {i}"


@dataclass(frozen=True, kw_only=True)
class Made:
    """Points with their provenance.

    Attributes:
        points: The points, all in no split (-1).
        facts: Facts about the source for the report, JSON-able.
        inputs: SHA-256 of the raw files by their names.
        versions: Versions of packages that the points depend on, beyond those of the engine.
        place: Function from the index of a point to a description of its place.
    """

    points: Points
    facts: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    place: Callable[[int], str] = _count_in_words
