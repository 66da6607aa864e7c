"""Statistics of weights.

Oracles: normally distributed log-weights, of which everything is known in closed form; ArviZ for
the shape of tails; an autoregressive process.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from pipeline_gauge_flows.data.ensembles.statistics import ChainRows
from pipeline_gauge_flows.evaluation.metropolis import describe_chain, run_chain
from pipeline_gauge_flows.evaluation.pareto import (
    compute_shape_limit,
    fit_tail_shape,
)
from pipeline_gauge_flows.evaluation.resampling import Resampled, Value, compute_value, make_blocks
from pipeline_gauge_flows.evaluation.weights import FlowEstimates, TargetEstimates

SEED = (1,)
MU, SIGMA = 700.0, 0.8
"""Of log w under the flow; exp(MU) is close to the largest double."""


def compute_quantiles(n: int) -> np.ndarray:
    return (np.arange(1, n + 1) - 0.5) / n


def draw_log_weights(n: int, seed: int = 0, tilt: float = 0.0) -> np.ndarray:
    """Return log-weights of samples of the flow, or with `tilt` 1 of the target."""
    return np.random.default_rng(seed).normal(MU + tilt * SIGMA**2, SIGMA, n)


@pytest.mark.parametrize(
    ("log_weight", "expected"),
    [
        (norm.ppf(compute_quantiles(1000)), 0.290753024475596),
        (3 * norm.ppf(compute_quantiles(1000)), 1.0524199736573676),
        (-0.8 * np.log1p(-compute_quantiles(1000)), 0.7574598327160174),
        (-0.3 * np.log1p(-compute_quantiles(1000)), 0.3235606438260692),
    ],
)
def test_tails_of_weights_have_the_shape_that_arviz_finds(log_weight, expected):
    """Values of `psislw` of ArviZ 0.23.4; the order and a constant factor do not matter."""
    shuffled = np.random.default_rng(0).permutation(log_weight) + 123.0
    assert fit_tail_shape(shuffled) == pytest.approx(expected, rel=1e-10)


def test_equal_weights_have_no_tail():
    assert fit_tail_shape(np.full(100, 5.0)) is None
    assert fit_tail_shape(5.0 + 1e-14 * norm.ppf(compute_quantiles(100))) is None
    assert fit_tail_shape(np.array([1.0, 2.0])) is None
    assert (compute_shape_limit(2000), compute_shape_limit(10**6)) == pytest.approx(
        (0.69706, 0.7), abs=1e-5
    )


def test_normal_log_weights_give_the_closed_forms():
    """log w ~ N(mu, s²) under q and N(mu + s², s²) under p: ESS = exp(-s²), log Z = mu + s²/2."""
    n, s2 = 40_000, SIGMA**2
    flow = FlowEstimates(draw_log_weights(n), {"one": np.ones(n)}, 200, SEED)
    target = TargetEstimates(draw_log_weights(n, 1, tilt=1), 200, SEED)
    for estimate, expected in (
        (flow.ess, math.exp(-s2)),
        (flow.log_z, MU + s2 / 2),
        (flow.elbo, MU),
        (flow.eubo, MU + s2),
        (flow.variance, s2),
        (flow.log_z - flow.elbo, s2 / 2),
        (target.ess, math.exp(-s2)),
        (target.log_z, MU + s2 / 2),
        (target.eubo, MU + s2),
    ):
        value = compute_value(estimate)
        assert 0 < value.error < 0.02
        assert abs(value.measure_distance(expected)) < 4
    assert compute_value(flow.averages["one"]).to_dict() == pytest.approx({"value": 1, "error": 0})


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_should():
    """68.3 % within one standard error and 95.4 % within two, of 300 repetitions with s = 0.4."""
    s, sigmas = SIGMA / 2, []
    for seed in range(300):
        flow = FlowEstimates(draw_log_weights(1000, seed) / 2, {}, 60, (seed,))
        ess, log_z = compute_value(flow.ess), compute_value(flow.log_z)
        sigmas.append(
            [ess.measure_distance(math.exp(-(s**2))), log_z.measure_distance(MU / 2 + s**2 / 2)]
        )
    within = [(np.abs(sigmas) < limit).mean(axis=0) for limit in (1, 2)]
    np.testing.assert_allclose(within[0], 0.683, atol=0.09)
    np.testing.assert_allclose(within[1], 0.954, atol=0.05)


@pytest.mark.slow
def test_blocks_account_for_autocorrelation():
    """AR(1) with coefficient r: the error grows by the root of (1 + r) / (1 - r)."""
    r, n = 0.7, 40_000
    noise, x = np.random.default_rng(0).normal(size=n), np.empty(n)
    x[0] = noise[0]
    for i in range(1, n):
        x[i] = r * x[i - 1] + math.sqrt(1 - r * r) * noise[i]
    chains = ChainRows([np.arange(n // 2), np.arange(n // 2, n)])
    blocks = make_blocks(chains, [x], n)
    lengths = np.bincount(blocks)
    assert 24 <= lengths.min() <= lengths.max() <= 36  # tau = 0.5 (1 + r) / (1 - r) = 2.8
    assert blocks[n // 2 - 1] != blocks[n // 2]
    error = compute_value(Resampled({"x": x}, 1000, SEED, blocks)["x"]).error
    naive = compute_value(Resampled({"x": x}, 1000, SEED)["x"]).error
    assert error / naive == pytest.approx(0.95 * math.sqrt((1 + r) / (1 - r)), rel=0.07)
    assert len(np.unique(make_blocks(ChainRows([np.arange(100)]), [x[:100]], 100))) >= 20
    white = make_blocks(chains, [noise], n)
    assert np.bincount(white).max() <= 2  # what is independent stays apart


def test_acceptance_of_normal_log_weights():
    """2 Phi(-s / sqrt 2) in equilibrium, since log w' - log w ~ N(-s², 2 s²)."""
    log_weight = draw_log_weights(40_000)
    places = run_chain(log_weight, SEED)
    chain = describe_chain(places, {"plaquette": log_weight - MU})
    expected = 2 * norm.cdf(-SIGMA / math.sqrt(2))
    assert chain["acceptance"] == pytest.approx(expected, abs=0.015)
    assert places[0] == 0
    assert (places <= np.arange(len(places))).all()
    average = chain["observables"]["plaquette"]
    assert average["tau_int"] > 0.6
    assert abs(average["mean"] - SIGMA**2) < 4 * average["error"]
    stays = np.diff(np.flatnonzero(np.diff(places, prepend=-1, append=-1)))
    assert chain["longest_stay"] == stays.max()
    assert (places == run_chain(log_weight, SEED)).all()


def test_stays_bound_the_error_of_a_chain():
    """Of what does not depend on the weight: var(mean) = sigma² sum of stays² / n²."""
    n = 40_000
    stays = np.tile([1, 1, 1, 200], n // 203)
    places = np.repeat(np.cumsum(stays) - stays, stays)
    values = np.random.default_rng(0).normal(size=len(places))
    average = describe_chain(places, {"plaquette": values})["observables"]["plaquette"]
    exact = math.sqrt(float(np.square(stays).sum())) / len(places)
    assert average["tau_int"] >= np.square(stays).sum() / (2 * len(places))
    assert average["error"] == pytest.approx(exact, rel=0.25)


def test_a_chain_that_stood_still_says_nothing():
    log_weight = np.zeros(2000)
    log_weight[500] = 60.0
    chain = describe_chain(run_chain(log_weight, SEED), {"plaquette": np.arange(2000.0)})
    assert chain["longest_stay"] == 1500
    average = chain["observables"]["plaquette"]
    assert (average["error"], average["tau_int"], average["tau_error"]) == (None, None, None)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.3671, 0.0093, "0.367(9)"),
        (0.3671, 0.0123, "0.367(12)"),
        (19.78, 1.3, "19.8(13)"),
        (196.9, 47.0, "197(47)"),
        (0.5, 0.00096, "0.5000(10)"),
        (1.25, 0.0, "1.25"),
    ],
)
def test_errors_are_shown_in_brackets(value, error, text):
    assert str(Value(value, error)) == text
