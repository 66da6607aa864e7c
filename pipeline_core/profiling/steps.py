"""Measured training steps by class of samples, and the growth of their memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline_core.profiling.calls import Measurement

Limit = Literal["memory", "time"]


@dataclass(frozen=True)
class SizeProbe:
    """Training sample that represents its size.

    Attributes:
        sample: Its number in the split.
        sizes: Its rows of each kind, without "sample".
        cost: Its cost, as the plugin gives it.
    """

    sample: int
    sizes: Mapping[str, int]
    cost: float

    @property
    def atoms(self) -> int:
        """Number of its atoms."""
        return self.sizes["atom"]


@dataclass(frozen=True)
class MeasuredClass:
    """The steps of one size of samples.

    Attributes:
        probe: The sample.
        steps: Steps by number of copies, ascending; empty if the first did not fit.
        limit: Reason why larger batches were not tried; None if all were.
    """

    probe: SizeProbe
    steps: Mapping[int, Measurement]
    limit: Limit | None

    @property
    def last(self) -> tuple[int, Measurement]:
        """Number of copies in the largest step, and its measurement."""
        return list(self.steps.items())[-1]


@dataclass(frozen=True)
class Line:
    """Bytes of a step as a linear function of the number of samples."""

    intercept: float
    slope: float

    def predict(self, samples: float) -> float:
        """Return the bytes of a step of so many samples."""
        return self.intercept + self.slope * samples

    def invert(self, limit: float) -> float:
        """Return the number of samples whose step takes `limit` bytes."""
        return max(0.0, limit - self.intercept) / self.slope if self.slope > 0 else np.inf


def fit_memory(
    probe: SizeProbe, steps: Mapping[int, Measurement], others: Sequence[MeasuredClass]
) -> Line | None:
    """Return the memory of steps of a probe, from its two largest measured ones.

    With one measured step it is proportional to the samples, with none to the cost, by the most
    expensive of the other classes. None if no memory has been measured.
    """
    points = [(n, s.memory) for n, s in steps.items() if s.memory is not None]
    if len(points) > 1:
        (n, less), (m, more) = points[-2:]
        slope = max(0.0, (more - less) / (m - n))
        return Line(max(0.0, more - slope * m), slope)
    if points:
        return Line(0.0, points[0][1] / points[0][0])
    rates = [
        step.memory / (n * c.probe.cost)
        for c in others
        if c.steps
        for n, step in [c.last]
        if step.memory is not None and c.probe.cost > 0
    ]
    return Line(0.0, max(rates) * probe.cost) if rates else None


def list_steps(classes: Sequence[MeasuredClass]) -> list[dict[str, Any]]:
    """Return the measured steps, JSON-able.

    Each has class, class_atoms, samples, atoms, edges, angles, cost, seconds (the median),
    seconds_all, memory.
    """
    return [
        {
            "class": number,
            "class_atoms": one.probe.atoms,
            "samples": n,
            **{f"{k}s": n * one.probe.sizes.get(k, 0) for k in ("atom", "edge", "angle")},
            "cost": n * one.probe.cost,
            "seconds": step.median,
            "seconds_all": list(step.seconds),
            "memory": step.memory,
        }
        for number, one in enumerate(classes)
        for n, step in one.steps.items()
    ]


def collect_totals(classes: Sequence[MeasuredClass]) -> dict[str, NDArray[np.float64]]:
    """Return the rows of each kind in each measured step, kind -> (n_steps,)."""
    kinds = classes[0].probe.sizes
    return {
        kind: np.array([n * c.probe.sizes[kind] for c in classes for n in c.steps], float)
        for kind in kinds
    }
