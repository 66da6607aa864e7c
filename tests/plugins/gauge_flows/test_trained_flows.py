"""Trained flows are as good as exact numbers say.

Oracles: exact partition functions of the two-dimensional torus; a strong-coupling series.
"""

import math

import pytest

from pipeline_gauge_flows.data.exact import compute_torus_log_z
from plugins.gauge_flows.trained import (
    HEATBATH,
    SIGMAS,
    SQUARE,
    THEORY,
    call_evaluate,
    compute_sigmas,
    make_fresh_run,
)
from tiers import exhaustive

pytestmark = pytest.mark.filterwarnings("ignore:.*lossy_conversion")


@pytest.mark.slow
def test_a_trained_flow_is_as_good_from_both_sides(tmp_path):
    """SU(3) on 4x4 at beta = 2."""
    run = make_fresh_run(
        tmp_path,
        {**THEORY, "action": {"beta": 2.0}, "generate": {**HEATBATH, "n_configurations": 500}},
        graph={**SQUARE, "masks": [{"mask": "direction", "sweeps": 2}]},
        model={"layers": {"hidden": [32]}, "draws": {"train": 640, "val": 64}},
        train={
            "epochs": 5, "batch_size": 64, "gradient": "path", "optimizer": {"lr": 4e-3},
            "schedule": {"name": "cosine"},
        },
    )  # fmt: skip
    _, metrics = call_evaluate(run, samples=2000, lattices=[[4, 8]])
    report, log_z = metrics["flow"]["lattices"][0], compute_torus_log_z(2.0, 3, 16)
    reverse, forward = report["ess"], report["forward"]["ess"]
    assert reverse["value"] > 0.9
    error = math.hypot(reverse["error"], forward["error"])
    assert abs(reverse["value"] - forward["value"]) < SIGMAS * error
    assert compute_sigmas(report["log_z"]["estimate"], log_z) < SIGMAS
    bounds = report["log_z"]["elbo"], report["log_z"]["eubo"]
    assert bounds[0]["value"] < log_z + SIGMAS * bounds[0]["error"]
    assert bounds[1]["value"] > log_z - SIGMAS * bounds[1]["error"]
    assert report["k_hat"] < 0.5
    assert report["metropolis"]["acceptance"] > 0.8
    assert abs(metrics["flow"]["volume_law"][1]["sigmas"]) < 2 * SIGMAS  # a law of large volumes
    for one in report["observables"].values():
        assert abs(one["sigmas"]["ensemble"]) < SIGMAS


@exhaustive
@pytest.mark.slow
def test_a_flow_brackets_log_z_in_four_dimensions(tmp_path):
    """SU(3) on 4^4 at beta = 1, where the series is known to 1e-4: ELBO, log Z and EUBO.

    200 samples and 100 configurations leave both bounds more than ten errors from log Z.
    """
    theory = {"lattice": {"extents": [4] * 4}, "action": {"beta": 1.0}}
    run = make_fresh_run(
        tmp_path,
        {**THEORY, **theory, "generate": {**HEATBATH, "n_configurations": 100}},
        graph={"masks": [{"mask": "direction", "sweeps": 2}]},
        model={"layers": {"hidden": [16]}, "draws": {"train": 160, "val": 8}},
        train={
            "epochs": 2, "batch_size": 8, "gradient": "path", "optimizer": {"lr": 1e-2},
            "precision": "32-true",
        },
    )  # fmt: skip
    _, metrics = call_evaluate(run, samples=200)
    log_z = metrics["flow"]["lattices"][0]["log_z"]
    expected = log_z["known"]["value"]
    assert expected == pytest.approx(45.020141, abs=1e-6)
    elbo, eubo = log_z["elbo"], log_z["eubo"]
    assert elbo["value"] + SIGMAS * elbo["error"] < expected
    assert expected < eubo["value"] - SIGMAS * eubo["error"]
    # Without training they are 0 and 90.
    print({name: log_z[name] for name in ("elbo", "estimate", "eubo")})
    assert eubo["value"] - elbo["value"] < 15
