"""The fit of times to sizes.

Oracles: coefficients that made the times, and scipy's `nnls` where all rows weigh the same.
"""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import nnls

from pipeline_core.training.balance.cost_model import CostModel, fit

TRUE = CostModel(2e-3, {"atom": 3e-6, "edge": 4e-8, "angle": 1e-8})


def draw_batches(n, seed=0):
    draw = np.random.default_rng(seed)
    atoms = draw.integers(10, 500, size=n)
    edges = atoms * draw.integers(20, 90, size=n)
    return {"atom": atoms, "edge": edges, "angle": edges * draw.integers(1, 30, size=n)}


def assert_same(model, expected, rtol):
    assert model.coefficients.keys() == expected.coefficients.keys()
    ours, theirs = ([*m.coefficients.values()] for m in (model, expected))
    assert_allclose(ours, theirs, rtol=rtol)


@pytest.mark.parametrize("n", [4, 10, 300])
def test_exact_times_give_the_coefficients_back(n):
    totals = draw_batches(n)
    assert_same(fit(totals, TRUE.predict(totals)), TRUE, rtol=1e-9)


@pytest.mark.parametrize("factor", [10.0, 1000.0, 0.1])
@pytest.mark.parametrize("part", [0.05, 0.2])
def test_outliers_change_nothing(factor, part):
    totals = draw_batches(400)
    seconds = TRUE.predict(totals)
    outliers = np.random.default_rng(1).choice(400, int(part * 400), replace=False)
    seconds[outliers] *= factor
    assert_same(fit(totals, seconds), TRUE, rtol=1e-9)


def test_outliers_among_noise_change_little():
    totals = draw_batches(1000)
    noise = np.random.default_rng(1).normal(size=1000)
    seconds = TRUE.predict(totals) * np.exp(0.05 * noise)
    clean = fit(totals, seconds)
    seconds[::20] *= 10
    assert_same(fit(totals, seconds), clean, rtol=0.05)
    assert_same(clean, TRUE, rtol=0.1)


def test_equal_times_are_plain_non_negative_least_squares():
    draw = np.random.default_rng(4)
    totals = {"atom": draw.uniform(1, 2, 60), "edge": draw.uniform(1, 2, 60)}
    expected, _ = nnls(np.stack([np.ones(60), totals["atom"], totals["edge"]], 1), np.full(60, 3.0))
    model = fit(totals, np.full(60, 3.0))
    assert_allclose(list(model.coefficients.values()), expected, atol=1e-9)


def test_relative_errors_count():
    """Two times of the same batch: Σ (f/t - 1)² is least at Σ 1/t over Σ 1/t²."""
    seconds = np.array([1.0, 2.0])
    model = fit({"atom": [5, 5]}, seconds)
    assert model.predict({"atom": [5]})[0] == pytest.approx(1.5 / 1.25)


def test_a_kind_that_speeds_up_is_left_out():
    totals = draw_batches(200)
    seconds = 1e-5 * totals["atom"] - 1e-8 * totals["edge"] + 1e-2
    model = fit(totals, seconds)
    assert model.per["edge"] == 0
    assert min(model.coefficients.values()) >= 0


def test_kinds_that_grow_together_and_one_that_no_batch_has():
    atoms = np.arange(1, 50)
    totals = {"atom": atoms, "edge": 12 * atoms, "angle": 0 * atoms}
    model = fit(totals, 1e-3 + 5e-4 * atoms)
    assert model.constant == pytest.approx(1e-3)
    assert model.per["atom"] + 12 * model.per["edge"] == pytest.approx(5e-4)
    assert model.per["angle"] == 0
    assert CostModel.of(json.loads(json.dumps(model.coefficients))) == model


def test_the_time_of_samples_leaves_the_constant_out():
    sizes = {"atom": [1, 2], "edge": [3, 4], "angle": [0, 5], "sample": [1, 1]}
    each = [3e-6 + 12e-8, 6e-6 + 16e-8 + 5e-8]
    assert_allclose(TRUE.predict_seconds(sizes), each)
    together = {kind: [sum(rows)] for kind, rows in sizes.items()}
    assert_allclose(TRUE.predict(together), [2e-3 + sum(each)])


@pytest.mark.parametrize(
    ("totals", "seconds", "message"),
    [
        ({"atom": [1, 2]}, [1.0, 2.0, 3.0], r"got \[\(2,\)\] and \(3,\)"),
        ({"atom": []}, [], "at least one batch"),
        ({"atom": [1, 2]}, [1.0, 0.0], "positive times"),
        ({}, [1.0], "at least one kind"),
    ],
)
def test_numbers_that_do_not_fit_together(totals, seconds, message):
    with pytest.raises(ValueError, match=message):
        fit(totals, seconds)
    with pytest.raises(ValueError, match="needs the kinds angle, atom, edge, got atom"):
        TRUE.predict_seconds({"atom": [1]})
