"""Measured training steps of samples of several sizes, and the growth of their memory.

A measured step is a record, JSON-able: class (the number of its probe), class_atoms, samples,
atoms, edges, angles, cost, seconds (the median), seconds_all, and memory (bytes; None if the system
does not report it).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_core.profiling.calls import Measurement
from pipeline_core.training.balance.cost_model import CostModel

Record = Mapping[str, Any]


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

    def record(self, number: int, samples: int, measured: Measurement) -> Record:
        """Return the record of a step of copies of the sample.

        Args:
            number: Number of this probe.
            samples: Number of copies.
            measured: The measured step.
        """
        return {
            "class": number,
            "class_atoms": self.atoms,
            "samples": samples,
            **{f"{k}s": samples * self.sizes.get(k, 0) for k in ("atom", "edge", "angle")},
            "cost": samples * self.cost,
            "seconds": measured.median,
            "seconds_all": list(measured.seconds),
            "memory": measured.memory,
        }


def fit_last(points: Sequence[tuple[int, int | None]]) -> CostModel | None:
    """Return bytes as a linear function of samples, from the two largest measured numbers.

    With one it is proportional; None for none.

    Args:
        points: Samples and bytes, ascending; None where the system does not report them.
    """
    measured = [(n, n_bytes) for n, n_bytes in points if n_bytes is not None]
    if len(measured) < 2:
        return CostModel(0.0, {"sample": measured[0][1] / measured[0][0]}) if measured else None
    (n, less), (m, more) = measured[-2:]
    slope = max(0.0, (more - less) / (m - n))
    return CostModel(max(0.0, more - slope * m), {"sample": slope})


def fit_memory(number: int, probe: SizeProbe, records: Sequence[Record]) -> CostModel | None:
    """Return the memory of steps of a probe by its samples, see `fit_last`.

    With no measured step it is proportional to the cost, by the largest steps of the other probes.
    None if no memory has been measured.

    Args:
        number: Number of the probe.
        probe: The probe.
        records: Measured steps of all probes.
    """
    own = [(one["samples"], one["memory"]) for one in records if one["class"] == number]
    if line := fit_last(own):
        return line
    largest = {one["class"]: (one["memory"], one["cost"]) for one in records}.values()
    rates = [n_bytes / cost for n_bytes, cost in largest if n_bytes is not None and cost > 0]
    return CostModel(0.0, {"sample": max(rates) * probe.cost}) if rates else None


def collect_totals(
    probes: Sequence[SizeProbe], records: Sequence[Record]
) -> dict[str, NDArray[np.float64]]:
    """Return the rows of each kind in each measured step, kind -> (n_steps,)."""
    return {
        kind: np.array(
            [one["samples"] * probes[one["class"]].sizes[kind] for one in records], float
        )
        for kind in probes[0].sizes
    }
