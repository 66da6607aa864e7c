"""Oracle: exchangeable numbers, of which split conformal intervals hold a known share; SciPy."""

import numpy as np
import pytest
from scipy import stats

from pipeline_atoms.ensembles.calibration import (
    LEVEL,
    Calibration,
    calibrate,
    find_factor,
    pool_components,
    report_coverage,
)


def draw(n, seed, members=4):
    """Errors and spreads of committees whose members scatter half as much as they are wrong."""
    rng = np.random.default_rng(seed)
    scale = rng.lognormal(0.0, 1.0, n)
    spread = scale * rng.standard_normal((members, n)).std(axis=0, ddof=1)
    return 2 * scale * rng.standard_normal(n), spread


@pytest.mark.parametrize("n", [5, 40, 4000])
def test_intervals_hold_the_share_that_they_promise(n):
    held = []
    for seed in range(60):
        calibration = calibrate(*draw(n, seed), "eV/Å", "val")
        held.append(report_coverage(*draw(2000, seed + 1000), calibration)["coverage"])
    assert 0.94 < np.mean(held) < 0.98
    assert calibration.method == ("normal" if n < 19 else "conformal")


def test_all_levels_of_the_reliability_diagram_lie_on_its_diagonal():
    report = report_coverage(*draw(4000, 1), calibrate(*draw(4000, 2), "eV/Å", "val"))
    for level, shares in report["reliability"].items():
        assert shares["calibrated"] == pytest.approx(float(level), abs=0.03)
        assert shares["uncalibrated"] < shares["calibrated"]
    widths = [one["half_width"] for one in report["bins"]]
    assert widths == sorted(widths)
    assert sum(one["count"] for one in report["bins"]) == 4000


def test_few_scores_are_taken_as_normal():
    scores = np.array([0.5, 1.0, 2.0])
    rms = np.sqrt(5.25 / 3)
    assert find_factor(scores, LEVEL) == pytest.approx(stats.t.interval(LEVEL, 3)[1] * rms)
    assert find_factor(scores, 0.5) == 1.0  # the second of three


def test_an_atom_on_which_all_agree_has_a_finite_interval():
    error, spread = draw(100, 3)
    error[0] = spread[0] = 0.0
    calibration = calibrate(error, spread, "eV/Å", "val")
    assert np.isfinite(list(calibration.factors.values())).all()
    assert calibration.compute_half_widths(np.zeros(1))[0] > 0
    assert Calibration.model_validate_json(calibration.model_dump_json()) == calibration


def test_what_cannot_be_calibrated_is_refused():
    with pytest.raises(ValueError, match="all members predict the same"):
        calibrate(np.ones(9), np.zeros(9), "eV/Å", "val")
    with pytest.raises(ValueError, match="no labels there"):
        calibrate(np.zeros(0), np.zeros(0), "eV/Å", "val")


def test_the_pooled_spread_does_not_turn_with_the_axes():
    rng = np.random.default_rng(6)
    forces = rng.standard_normal((4, 7, 3))
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    pooled, turned = (pool_components(f.std(axis=0, ddof=1)) for f in (forces, forces @ turn))
    assert np.allclose(pooled, turned, rtol=1e-12)
