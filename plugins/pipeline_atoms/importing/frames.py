"""Frames of a source: conversion of good frames, and a record of bad ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.importing.plausibility import find_implausible
from pipeline_atoms.importing.sources import RawSource
from pipeline_atoms.importing.tiling import count_copies
from pipeline_atoms.readers import BadFrame, Frame
from pipeline_atoms.readers.catalogue import open_frames
from pipeline_core.fields import FIELDS

_LISTED: Final = 50
_HEAVIEST: Final = 118


class Skipped:
    """Record of bad frames: count, reasons, and the first of them.

    Args:
        strict: True if the first bad frame stops the import.
    """

    def __init__(self, strict: bool) -> None:
        self._strict = strict
        self._reasons: Counter[str] = Counter()
        self.first: list[str] = []

    def __len__(self) -> int:
        return self._reasons.total()

    def add(self, path: Path, bad: BadFrame) -> None:
        """Record a bad frame of the file `path`.

        Raises:
            ValueError: The import is strict.
        """
        place = f"{path}: frame {bad.index}: {bad.reason}"
        if self._strict:
            raise ValueError(
                f"{place}; repair or remove the frame, or set strict: false to skip such frames"
            )
        self._reasons[bad.reason] += 1
        if len(self.first) < _LISTED:
            self.first.append(place)

    def explain_useless(self, source: RawSource, n_before: int) -> str:
        """Return an error message: all frames of a source are bad.

        Args:
            source: The source.
            n_before: Number of bad frames in earlier sources.
        """
        n_bad = len(self) - n_before
        examples = "".join(f"\n  {place}" for place in self.first[n_before:][:3])
        return (
            f"{source.name}: none of {n_bad} frames in {len(source.files)} files can be used; "
            f"check that {source.reader.name!r} is the right reader{examples}"
        )

    def append(self, others: Skipped) -> None:
        """Append another record of bad frames."""
        self._reasons += others._reasons
        self.first = [*self.first, *others.first][:_LISTED]

    def report(self) -> dict[str, Any]:
        """Return the count, the most frequent reasons and the first frames."""
        reasons = dict(self._reasons.most_common(_LISTED))
        return {"count": len(self), "reasons": reasons, "first": self.first}


def check_frame(frame: Frame, source: RawSource) -> Frame | BadFrame:
    """Return a frame with plausible numbers, otherwise a bad frame with the reason.

    The stress is dropped unless all three directions are periodic: without a volume it is not
    defined.
    """
    numbers = frame.atomic_numbers
    if numbers.min() < 1 or numbers.max() > _HEAVIEST:
        return BadFrame(frame.index, "has an atomic number that is not an element")
    sample = make_sample(frame, list(frame.labels), source.factors)
    problem = find_implausible(sample, source.options.limits)
    if problem is not None:
        return BadFrame(frame.index, problem)
    if "stress" in frame.labels and not frame.pbc.all():
        return replace(frame, labels={n: v for n, v in frame.labels.items() if n != "stress"})
    return frame


def check_copies(source: RawSource) -> None:
    """Check the copies of a source with the first good frame of its first file, if it exists.

    Raises:
        ValueError: The frame cannot be repeated as declared.
    """
    name, path = next(iter(source.files.items()))
    if (source.options.repeat or source.options.repeat_to) is None or not path.is_file():
        return
    for item in open_frames(path, source.reader, source.keys):
        frame = item if isinstance(item, BadFrame) else check_frame(item, source)
        if not isinstance(frame, BadFrame):
            try:
                count_copies(source.options, make_sample(frame, [], source.factors))
            except ValueError as error:
                raise ValueError(f"{source.name}: {name}:{frame.index}: {error}") from None
            return


def make_sample(
    frame: Frame,
    labels: Sequence[str],
    factors: Mapping[str, float],
    missing: Sequence[str] = (),
) -> dict[str, NDArray[Any]]:
    """Convert a good frame into the arrays of a sample, in the engine's units; NaN if missing.

    Args:
        frame: The frame.
        labels: Names of the labels to keep.
        factors: Field name to the conversion factor of its values.
        missing: Names of labels to leave out, even if the frame has them.
    """
    sample: dict[str, NDArray[Any]] = {
        "atomic_numbers": frame.atomic_numbers,
        "positions": frame.positions * factors["positions"],
        "cell": frame.cell * factors["cell"],
        "pbc": frame.pbc,
    }
    for name in (*labels, *missing):
        if name in frame.labels and name not in missing:
            sample[name] = frame.labels[name] * factors.get(name, 1.0)
            if name == "magmoms":  # reversing all spins leaves the energy unchanged
                sample[name] = np.abs(sample[name])
        else:
            rows = (len(frame.atomic_numbers),) if FIELDS[name].kind == "atom" else ()
            sample[name] = np.full((*rows, *FIELDS[name].shape), np.nan)
    return sample
