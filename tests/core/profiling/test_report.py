"""What measured steps amount to; oracle: a device whose time and memory are known."""

import numpy as np
import pytest

from pipeline_core.profiling.calls import Measurement
from pipeline_core.profiling.report import (
    describe_fit,
    find_capacity,
    find_saturation,
)
from pipeline_core.profiling.steps import SizeProbe
from pipeline_core.training.balance.cost_model import CostModel


def record(atoms, seconds):
    return {"atoms": atoms, "seconds": seconds}


def predict_step(atoms):
    """Seconds on a device that does 400 atoms in the time of one."""
    return record(atoms, max(4.0, 0.01 * atoms))


def test_a_device_saturates_where_time_begins_to_grow():
    records = [predict_step(n) for n in (800, 100, 200, 400, 1600, 50, 350)]

    assert find_saturation(records) == {"atoms": 400.0, "seconds_per_atom": 0.01}
    # 375 atoms take 4 s: 0.01067 s an atom, within a tenth of the best.
    assert find_saturation([*records, predict_step(375)])["atoms"] == 375.0


def measure_classes(*classes, per_atom=50, memory=True):
    """Steps of 1000 bytes, and some for each atom, of classes of atoms, copies and a limit."""
    probes = [SizeProbe(0, {"atom": n, "edge": 9 * n}, 10.0 * n) for n, *_ in classes]
    records = []
    for number, (atoms, copies, _) in enumerate(classes):
        for n in copies:
            n_bytes = 1000 + per_atom * n * atoms if memory else None
            records.append(probes[number].record(number, n, Measurement((1.0 * n,), n_bytes)))
    return probes, records, [limit for *_, limit in classes]


def test_capacity_where_memory_is_the_limit():
    measured = measure_classes((2, [1, 2, 4], None), (100, [1, 2], "memory"))
    result = find_capacity(*measured, 21_500.0)
    assert result["atoms"] == (21_500 - 1000) // 50
    assert result["cost"] == pytest.approx(10 * (21_500 - 1000) / 50)
    assert result["bytes_per_atom"] == pytest.approx((1000 + 50 * 200) / 200)
    assert result["limited_by"] == "memory"
    assert result["memory_limit"] == 21_500.0
    probes, records, limits = measure_classes((50, [1, 2], "memory"), (100, [1, 2], "memory"))
    for record in records[2:]:  # which needs most
        record["memory"] += 30 * record["atoms"]
    assert find_capacity(probes, records, limits, 17_000.0)["atoms"] == 200


def test_capacity_where_time_or_nothing_is_the_limit():
    classes = (2, [1, 2, 4], None), (30, [1, 2], "time")
    result = find_capacity(*measure_classes(*classes, memory=False), None)
    assert (result["atoms"], result["cost"]) == (60, 600.0)
    assert result["limited_by"] == "time"
    assert result["bytes_per_atom"] is result["memory_limit"] is None
    result = find_capacity(*measure_classes((2, [1, 8], None)), 1e9)
    assert (result["atoms"], result["limited_by"]) == (16, "the largest batch tried")


def test_errors_of_a_fit():
    model = CostModel(1.0, {"atom": 2.0})
    totals = {"atom": np.array([1.0, 2.0, 3.0])}  # 3, 5 and 7 s

    result = describe_fit(model, totals, np.array([3.0, 4.0, 10.0]))
    assert result == {"constant": 1.0, "atom": 2.0, "relative_error": pytest.approx(0.25)}
