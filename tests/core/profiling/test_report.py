"""What measured steps amount to; oracle: a device whose time and memory are known."""

import numpy as np
import pytest

from pipeline_core.profiling.calls import Measurement
from pipeline_core.profiling.report import (
    describe_fit,
    find_capacity,
    find_growth,
    find_saturation,
)
from pipeline_core.profiling.steps import MeasuredClass, SizeProbe
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


def make_measured_class(atoms, copies, limit=None, per_atom=50, memory=True):
    probe = SizeProbe(0, {"atom": atoms, "edge": 9 * atoms}, 10.0 * atoms)
    steps = {
        n: Measurement((n * 1.0,), 1000 + per_atom * n * atoms if memory else None) for n in copies
    }
    return MeasuredClass(probe, steps, limit)


def test_the_batch_from_which_on_larger_ones_take_longer():
    # Up to 400 atoms a step takes as long as one of a single atom.
    small, large = (
        [
            {**predict_step(atoms * n), "class": number, "class_atoms": atoms, "samples": n}
            for n in counts
        ]
        for number, atoms, counts in ((0, 50, (16, 1, 2, 4, 8)), (1, 1000, (1, 2)))
    )
    assert find_growth([*large, *small]) == [
        {"class_atoms": 50, "samples": 16},
        {"class_atoms": 1000, "samples": 2},
    ]
    # None takes longer: the largest that was tried.
    assert find_growth(small[1:3]) == [{"class_atoms": 50, "samples": 2}]


def test_capacity_where_memory_is_the_limit():
    classes = [make_measured_class(2, [1, 2, 4]), make_measured_class(100, [1, 2], "memory")]
    result = find_capacity(classes, 21_500.0)
    assert result["atoms"] == (21_500 - 1000) // 50
    assert result["cost"] == pytest.approx(10 * (21_500 - 1000) / 50)
    assert result["bytes_per_atom"] == pytest.approx((1000 + 50 * 200) / 200)
    assert result["limited_by"] == "memory"
    assert result["memory_limit"] == 21_500.0
    hungry = make_measured_class(100, [1, 2], "memory", per_atom=80)  # which needs most
    classes = [make_measured_class(50, [1, 2], "memory"), hungry]
    assert find_capacity(classes, 17_000.0)["atoms"] == 200


def test_capacity_where_time_or_nothing_is_the_limit():
    slow = make_measured_class(30, [1, 2], "time", memory=False)
    result = find_capacity([make_measured_class(2, [1, 2, 4]), slow], None)
    assert (result["atoms"], result["cost"]) == (60, 600.0)
    assert result["limited_by"] == "time"
    assert result["bytes_per_atom"] is result["memory_limit"] is None
    result = find_capacity([make_measured_class(2, [1, 8])], 1e9)
    assert (result["atoms"], result["limited_by"]) == (16, "the largest batch tried")


def test_errors_of_a_fit():
    model = CostModel(1.0, {"atom": 2.0})
    totals = {"atom": np.array([1.0, 2.0, 3.0])}  # 3, 5 and 7 s

    result = describe_fit(model, totals, np.array([3.0, 4.0, 10.0]))
    assert result == {"constant": 1.0, "atom": 2.0, "relative_error": pytest.approx(0.25)}
