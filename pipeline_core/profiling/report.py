"""Results from measured steps: saturation and capacity of the device."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_core.profiling.steps import Record, SizeProbe, fit_memory
from pipeline_core.training.balance.cost_model import CostModel

_WITHIN: Final = 1.1
"""Times per atom up to this factor over the best count as saturated."""


def find_saturation(records: Sequence[Record]) -> dict[str, float]:
    """Return the size of batches from which on the device is saturated.

    As section 5.5 of J. Firoz et al., arXiv:2504.10700: more atoms then take more time.

    Args:
        records: Measured steps, see `steps`; at least one.

    Returns:
        atoms: the smallest batch from which on no larger one takes less than 1 / 1.1 of its time
        per atom, over all classes; seconds_per_atom: the shortest.
    """
    atoms = np.array([record["atoms"] for record in records], dtype=np.float64)
    rates = np.array([record["seconds"] for record in records]) / atoms
    sizes = np.unique(atoms)
    best_at = np.array([rates[atoms == size].min() for size in sizes])
    best_from = np.minimum.accumulate(best_at[::-1])[::-1]
    worst = np.array([rates[atoms == size].max() for size in sizes])
    too_slow = np.flatnonzero(worst > _WITHIN * best_from)
    first = min(too_slow[-1] + 1, len(sizes) - 1) if len(too_slow) else 0
    return {"atoms": float(sizes[first]), "seconds_per_atom": float(rates.min())}


def find_growth(records: Sequence[Record]) -> list[dict[str, int]]:
    """Return the batch from which on larger ones take longer, for each size of samples.

    Args:
        records: Measured steps, see `steps`.

    Returns:
        class_atoms, and samples: the smallest batch that takes more than 1.1 times as long as the
        smallest one, or the largest batch if none does; by rising class.
    """
    growth = []
    for number in sorted({record["class"] for record in records}):
        mine = sorted((r for r in records if r["class"] == number), key=lambda r: r["samples"])
        slow = [r for r in mine if r["seconds"] > _WITHIN * mine[0]["seconds"]]
        first = (slow or mine[-1:])[0]
        growth.append({"class_atoms": first["class_atoms"], "samples": first["samples"]})
    return growth


def find_capacity(
    probes: Sequence[SizeProbe],
    records: Sequence[Record],
    limits: Sequence[str | None],
    limit: float | None,
) -> dict[str, Any]:
    """Return the largest step that the device can compute.

    If memory limited the batches of a probe, it is the step that would fill the memory, for the
    probe that fits least. Else it is the largest measured step.

    Args:
        probes: Measured samples.
        records: Measured steps; at least one.
        limits: Limits of the probes, as from `measure_classes`.
        limit: Bytes that a step may use.

    Returns:
        atoms; cost, in the units of `partition.capacity`; bytes_per_atom, of the largest measured
        step, None if the system does not report it; limited_by; memory_limit.
    """
    last = max(records, key=lambda one: one["atoms"])
    full = []
    for number, probe in enumerate(probes):
        line = fit_memory(number, probe, records) if limits[number] == "memory" else None
        if line is not None and limit is not None and line.per["sample"] > 0:
            n = max(0.0, limit - line.constant) / line.per["sample"]
            full.append((n * probe.atoms, n * probe.cost))
    atoms, cost = last["atoms"], last["cost"]
    if full:
        atoms, cost = map(min, zip(*full, strict=True))
    reason = next((r for r in ("memory", "time") if r in limits), "the largest batch tried")
    return {
        "atoms": round(atoms),
        "cost": float(cost),
        "bytes_per_atom": None if last["memory"] is None else last["memory"] / last["atoms"],
        "limited_by": reason,
        "memory_limit": limit,
    }


def describe_fit(
    model: CostModel, totals: Mapping[str, NDArray[np.float64]], seconds: NDArray[np.float64]
) -> dict[str, float]:
    """Return the coefficients of a cost model, and the median of its relative errors."""
    errors = np.abs(model.predict(totals) - seconds) / seconds
    return {**model.coefficients, "relative_error": float(np.median(errors))}


def summarize(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the main numbers of a study."""
    limit, model = content["capacity"], content["cost_model"]
    return {
        "saturated_from_atoms": content["saturation"]["atoms"],
        "seconds_per_atom": content["saturation"]["seconds_per_atom"],
        "capacity_atoms": limit["atoms"],
        "capacity_cost": limit["cost"],
        "limited_by": limit["limited_by"],
        "seconds_of": {name: value for name, value in model.items() if name != "relative_error"},
        "relative_error": model["relative_error"],
    }
