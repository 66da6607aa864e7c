"""Derivatives from weights of a flow, without a flow.

Oracles: a normal distribution that is shifted, where flows, weights and derivatives are known in
closed form; the spread of many repetitions.
"""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_gauge_flows.data.actions import ActionOptions
from pipeline_gauge_flows.data.datasets import FermionOptions
from pipeline_gauge_flows.data.ensembles.statistics import ChainRows
from pipeline_gauge_flows.evaluation.resampling import Value, compute_value
from pipeline_gauge_flows.inference.derivative import (
    CONJUGATE,
    DerivativeEstimates,
    Step,
    compute_independent,
    find_step,
)
from plugins.gauge_flows.made_up import STEP, draw_shift
from plugins.gauge_flows.trained import SIGMAS


def make_estimates(part: float, n: int = 4000, seed: int = 0) -> DerivativeEstimates:
    chains = ChainRows([np.arange(n // 2), np.arange(n // 2, n)])
    return DerivativeEstimates(draw_shift(n, part, seed), STEP, chains, 200, (seed,))


def test_an_exact_flow_has_no_error_where_it_shifts():
    """d<x>/dlambda = 1, and the difference of <x²> = 1 + lambda² is 2 lambda_1 + step."""
    estimates = make_estimates(1.0)
    report = estimates.report("plaquette")
    assert report["flow"] == pytest.approx({"value": 1.0, "error": 0.0}, abs=1e-12)
    square = compute_value(estimates.flow_derivative("square"))
    assert abs(square.measure_distance(STEP.length)) < SIGMAS
    assert square.error == pytest.approx(2 / 4000**0.5, rel=0.15)  # 2 x
    # The conjugate is -x.
    assert estimates.report(CONJUGATE)["flow"]["value"] == pytest.approx(-1.0)


@pytest.mark.parametrize("part", [0.0, 0.8, 1.3])
def test_a_flow_that_is_not_exact_is_reweighted(part):
    report = make_estimates(part).report("plaquette")
    for key in ("flow", "epsilon_same_step", "epsilon_limit", "epsilon_best"):
        assert abs(report[key]["value"] - 1) < SIGMAS * report[key]["error"]
    assert abs(report["ends"]["sigmas"]) < SIGMAS
    for entry in report["epsilon_scan"]:
        assert abs(entry["value"] - 1) < SIGMAS * entry["error"]
    ratios = report["error_ratio"]
    if part == 0:
        assert report["flow"] == pytest.approx(report["epsilon_same_step"])
        assert ratios["same_step"] == pytest.approx(1)
    else:
        # What is left of the shift is reweighted: the variance falls with its square.
        assert ratios["same_step"] == pytest.approx(1 / abs(1 - part), rel=0.15)
        assert 1 < ratios["best"] <= ratios["same_step"]


def test_both_ends_have_their_covariances():
    """Of x² with -C = x: 2 lambda, and 2 lambda_2 at the end; their mean is the difference."""
    estimates = make_estimates(0.8, 40_000)
    report = estimates.report("square")
    assert abs(report["ends"]["start"]["value"]) < SIGMAS * report["ends"]["start"]["error"]
    end = report["ends"]["end"]
    assert abs(end["value"] - 2 * STEP.length) < SIGMAS * end["error"]
    mean = report["ends"]["mean"]
    assert abs(mean["value"] - STEP.length) < SIGMAS * mean["error"]
    assert mean["error"] < max(report["ends"]["start"]["error"], end["error"])


@pytest.mark.slow
def test_errors_are_those_of_many_repetitions():
    repetitions = [make_estimates(0.8, 500, seed) for seed in range(40)]
    values = [compute_value(one.flow_derivative("plaquette")) for one in repetitions]
    spread = np.std([one.value for one in values])
    assert np.mean([one.error for one in values]) == pytest.approx(spread, rel=0.3)


def test_two_ensembles():
    difference = compute_independent(Value(1.0, 0.03), Value(1.4, 0.04), STEP)
    assert (difference.value, difference.error) == pytest.approx((2.0, 0.25))


def test_the_step_is_in_one_parameter():
    base = ActionOptions(beta=2.0)
    assert find_step(base, ActionOptions(beta=2.5)) == Step("beta", 2.0, 2.5)
    step = find_step(base, ActionOptions(beta=2.0, anisotropy=0.1))
    assert step == Step("anisotropy", 0.0, 0.1)
    two = ActionOptions(beta=2.1, anisotropy=0.1)
    quarks = ActionOptions(beta=2.0, fermions=FermionOptions(kappa=0.15))
    for other in (base, two, ActionOptions(name="iwasaki", beta=2.1), quarks):
        with pytest.raises(ValueError, match="differ in one of beta, anisotropy, kappa, two_kappa"):
            find_step(base, other)
    twisted = ActionOptions(beta=2.0, fermions=FermionOptions(kappa=0.15, two_kappa_mu=0.1))
    assert find_step(quarks, twisted) == Step("two_kappa_mu", 0.0, 0.1)
