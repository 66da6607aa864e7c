"""Masses of mesons and their derivatives.

Oracles: `pyerrors`' own fits and effective masses of the configurations themselves; a made-up meson
whose mass is a closed form of the parameter (`made_up`); finite differences.
"""

import numpy as np
import pytest

from pipeline_gauge_flows.data.ensembles.statistics import import_pyerrors
from pipeline_gauge_flows.evaluation.resampling import compute_value
from pipeline_gauge_flows.inference.masses import MassFit
from pipeline_gauge_flows.inference.pion import ELEMENT, MASS, make_fit
from plugins.gauge_flows import made_up

SIGMAS = 4.0
N = 500


@pytest.fixture(scope="module")
def rows():
    """Correlators at lambda = 0, (N, T/2 + 1)."""
    return made_up.draw_meson(np.random.default_rng(1).normal(size=N), 1)


@pytest.fixture(scope="module")
def correlator(rows):
    """The same as pyerrors takes them: all times, each configuration a measurement."""
    errors = import_pyerrors()
    whole = np.concatenate([rows, rows[:, -2:0:-1]], axis=1)
    slices = [errors.Obs([column], ["chain"]) for column in whole.T]
    for one in slices:
        one.gamma_method(S=0)  # independent configurations
    return errors.Corr(slices)


def build_fit(rows, t_min, t_max=made_up.MIDDLE):
    times = range(t_min, t_max + 1)
    covariance = np.cov(rows[:, times.start : times.stop].T) / (len(rows) - 1)
    return MassFit(times, made_up.MIDDLE, covariance)


def propagate(fit, rows):
    """Return the mass and its error, from fluctuations to first order."""
    chosen = rows[:, fit.times.start : fit.times.stop]
    masses = fit(np.concatenate([chosen.mean(0, keepdims=True), chosen]))
    return masses[0], masses[1:].std() / len(rows) ** 0.5


@pytest.mark.parametrize("t_min", [1, 2])
def test_fits_are_those_of_pyerrors(rows, correlator, t_min):
    import autograd.numpy as differentiable

    def model(parameters, t):
        return parameters[0] * differentiable.cosh(parameters[1] * (t - made_up.MIDDLE))

    theirs = correlator.fit(
        model, [t_min, made_up.MIDDLE], silent=True, correlated_fit=True, initial_guess=[1.0, 1.1]
    )
    mass = theirs.fit_parameters[1]
    mass.gamma_method(S=0)
    ours, error = propagate(build_fit(rows, t_min), rows)
    assert ours == pytest.approx(mass.value, abs=0.02 * mass.dvalue)
    assert error == pytest.approx(mass.dvalue, rel=0.02)


def test_effective_masses_are_those_of_pyerrors(rows, correlator):
    theirs = correlator.m_eff("cosh")
    for t in (0, 2):
        mass = theirs.content[t][0]
        mass.gamma_method(S=0)
        ours, error = propagate(build_fit(rows, t, t + 1), rows)
        assert ours == pytest.approx(mass.value, rel=1e-5)
        assert error == pytest.approx(mass.dvalue, rel=1e-2)


def test_what_does_not_fall_has_no_mass(rows):
    fit = build_fit(rows, 1)
    for means in ([1.0] * 4 + [1.1], [1.0, 0.5, 0.2, 0.1, -0.1]):
        assert np.isnan(fit(np.array([means, means]))).all()


@pytest.mark.slow
@pytest.mark.parametrize("part", [0.8, 1.0])
def test_the_derivative_of_the_mass_is_exact(part):
    """By the flow, epsilon-reweighting and covariances at both ends; and that of log(M) / 2."""
    estimates = made_up.make_meson_estimates(part)
    middle = made_up.MASS + made_up.SLOPE * made_up.STEP.length / 2
    for name, exact in (
        (f"{MASS}_1", made_up.SLOPE), (f"{ELEMENT}_1", made_up.SLOPE / (2 * middle)),
    ):  # fmt: skip
        report = estimates.report(name)
        keys = ("flow", "epsilon_same_step", "epsilon_best", "epsilon_limit")
        slack = 0.02 * exact  # of the step: the logarithm is not linear
        for one in (*(report[key] for key in keys), report["ends"]["mean"], report["ends"]["end"]):
            assert abs(one["value"] - exact) < SIGMAS * one["error"] + slack
        assert report["error_ratio"]["best"] > 1.5
        assert abs(report["ends"]["sigmas"]) < SIGMAS


def test_the_limit_of_reweighting_is_the_derivative_of_the_reweighted_mass():
    """Oracle: the difference of masses of the same configurations over a hundredth of the step."""
    estimates = made_up.make_meson_estimates(0.8, 1000)
    fit = make_fit(estimates, range(1, made_up.MIDDLE + 1), made_up.MIDDLE)
    x = estimates.before["plaquette"]
    rows = np.stack([estimates.before[name] for name in fit.inputs], axis=1)
    length = 0.01 * made_up.STEP.length
    masses = []
    for sign in (1, -1):
        weight = np.exp(sign * length * x)
        masses.append(fit.fit(weight @ rows / weight.sum()).mass)
    difference = (masses[0] - masses[1]) / (2 * length)
    limit = compute_value(estimates.estimate_covariance(f"{MASS}_1", "start:"))
    assert limit.value == pytest.approx(difference, rel=1e-4)


def test_too_few_configurations_have_no_covariance():
    with pytest.raises(ValueError, match="8 independent blocks of configurations have no"):
        made_up.make_meson_estimates(0.8, 8)
