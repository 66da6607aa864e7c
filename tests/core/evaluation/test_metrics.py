"""Oracles: numbers worked out by hand, NumPy's formulas on all numbers at once."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_core.evaluation.metrics import Errors


def test_by_hand():
    label = np.array([[1.0, 2.0], [np.nan, 5.0], [0.0, -2.0]])
    predicted = np.array([[1.5, 2.0], [9.0, 4.0], [0.0, 0.0]])
    # errors 0.5, 0, -1, 0, 2; labels 1, 2, 5, 0, -2 of mean 1.2 and squares 34
    report = Errors.of(predicted - label, label).report("eV")

    assert report == {
        "unit": "eV",
        "count": 5,
        "missing": 1,
        "mae": pytest.approx(3.5 / 5),
        "rmse": pytest.approx((5.25 / 5) ** 0.5),
        "max_error": 2.0,
        "r2": pytest.approx(1 - 5.25 / (34 - 5 * 1.2**2)),
        "label_mean_absolute": pytest.approx(2.0),
        "label_std": pytest.approx((34 / 5 - 1.2**2) ** 0.5),
    }


def test_no_label_is_null_and_counted():
    report = Errors.of(np.zeros(3), np.full(3, np.nan)).report("µB")
    assert (report["count"], report["missing"]) == (0, 3)
    assert [report[k] for k in ("mae", "rmse", "r2", "max_error", "label_std")] == [None] * 5
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    equal = Errors.of(np.array([0.1, -0.1]), np.array([3.0, 3.0]))
    assert equal.report("eV")["r2"] is None


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_batches_add_up_to_the_whole(seed, sizes):
    rng = np.random.default_rng(seed)
    # Total energies: the mean is nine orders larger than what matters. Whole multiples of 2⁻¹² eV,
    # so that their differences are exact and numpy's two passes are an oracle to all digits.
    label = [-(2.0**20) + rng.integers(-9, 10, n) / 2**12 for n in sizes]
    error = [1e-3 * rng.normal(size=n) for n in sizes]
    for values in label:
        values[rng.random(len(values)) < 0.2] = np.nan

    errors = sum((Errors.of(e, y) for e, y in zip(error, label, strict=True)), Errors())

    y, e = np.concatenate(label), np.concatenate(error)
    e, y = e[~np.isnan(y)], y[~np.isnan(y)]
    report = errors.report("eV")
    assert (report["count"], report["missing"]) == (len(y), sum(sizes) - len(y))
    if len(y) > 1:
        assert report["mae"] == pytest.approx(np.abs(e).mean())
        assert report["rmse"] == pytest.approx(np.sqrt((e**2).mean()))
        assert report["label_std"] == pytest.approx(y.std())
        if y.std() > 0:
            share = (e**2).sum() / ((y - y.mean()) ** 2).sum()
            assert 1 - report["r2"] == pytest.approx(share)
        assert report["max_error"] == np.abs(e).max()
        assert report["label_mean_absolute"] == pytest.approx(np.abs(y).mean())
