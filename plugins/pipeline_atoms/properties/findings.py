"""Findings of a property calculation: a summary of numbers, and arrays for figures."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

Scalar = float | int | bool | str | None


@dataclass(frozen=True)
class Findings:
    """Findings on a property of one structure.

    Attributes:
        summary: Name with unit -> number or word; None where it is not defined.
        arrays: Name -> array, for figures.
        units: Name of an array -> unit.
    """

    summary: Mapping[str, Scalar]
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)

    def store(self, group: h5py.Group) -> None:
        """Write the findings into an empty group: the summary as attributes."""
        group.attrs.update({key: value for key, value in self.summary.items() if value is not None})
        for name, values in self.arrays.items():
            data = values.astype(h5py.string_dtype()) if values.dtype.kind == "U" else values
            group.create_dataset(name, data=data).attrs["unit"] = self.units.get(name, "1")


Tasks = Iterator[tuple[str, Callable[[], Findings]]]
"""Names, each with a function that computes a property."""


def refuse(error: ValueError) -> Findings:
    """Raise an error in place of a calculation."""
    raise error


def as_array(values: Any) -> NDArray[np.float64]:
    """Convert numbers to an array."""
    return np.asarray(values, dtype=np.float64)
