"""Exact values and strong-coupling series, and what is known by planes of a lattice.

Oracles: integrals over classes by scipy; Bessel functions; tables that other programs computed by
the same expansion; derivatives of log Z. Monte Carlo is in `test_ensembles`.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import iv

from pipeline_gauge_flows.data.actions import ActionOptions, GaugeAction
from pipeline_gauge_flows.data.exact import (
    compute_torus_log_z,
    compute_torus_plaquette,
    expand_characters,
)
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.data.theory import compute_known

# beta, log a_0, u, log Z and P of 4x4, P of 2x2
TABLE = {
    2: [
        (1, 0.1224991931, 0.24019372, 1.95998709, 0.24019372, 0.24326053),
        (2, 0.4641344735, 0.43312743, 7.42615311, 0.43312800, 0.44614497),
        (4, 1.5850904185, 0.65804727, 25.36268224, 0.65818507, 0.67866208),
    ],
    3: [
        (1, 0.0293094205, 0.06012655, 0.46895073, 0.06012655, 0.06015463),
        (2, 0.1230638999, 0.12862779, 1.96902240, 0.12862779, 0.12893429),
        (3, 0.2885639098, 0.20307505, 4.61702256, 0.20307505, 0.20435048),
        (4, 0.5299184068, 0.27961915, 8.47869451, 0.27961915, 0.28293529),
        (5, 0.8470568054, 0.35395444, 13.55290901, 0.35395446, 0.36026950),
        (6, 1.2358900916, 0.42253174, 19.77424353, 0.42253206, 0.43212825),
        (8, 2.1997184474, 0.53575399, 35.19558730, 0.53576231, 0.55007421),
    ],
}


@pytest.mark.parametrize(("n", "row"), [(n, row) for n, rows in TABLE.items() for row in rows])
def test_two_dimensions(n, row):
    beta, log_a, u, log_z, plaquette, small = row
    expansion = expand_characters(float(beta), n)
    assert np.log(expansion.a[0]) == pytest.approx(log_a, abs=1e-10)
    assert expansion.u == pytest.approx(u, abs=1e-8)
    assert compute_torus_log_z(beta, n, 16) == pytest.approx(log_z, abs=1e-8)
    assert compute_torus_plaquette(beta, n, 16) == pytest.approx(plaquette, abs=1e-8)
    assert compute_torus_plaquette(beta, n, 4) == pytest.approx(small, abs=1e-8)


@pytest.mark.parametrize("beta", [0.3, 2.0, 7.5])
def test_su2_are_bessel_functions(beta):
    expansion = expand_characters(beta, 2)
    j = np.arange(len(expansion.a)) / 2
    np.testing.assert_allclose(expansion.dimension, 2 * j + 1)
    np.testing.assert_allclose(expansion.a, 2 * iv(2 * j + 1, beta) / beta, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("beta", [1.0, 6.0])
def test_su3_by_integration_over_classes(beta):
    """Weyl's measure on the angles (x, y, -x - y)."""

    def integral(character) -> float:
        def integrand(x: float, y: float) -> float:
            z = np.exp(1j * np.array([x, y, -x - y]))
            measure = abs((z[0] - z[1]) * (z[0] - z[2]) * (z[1] - z[2])) ** 2
            weight = np.exp(beta / 3 * z.sum().real)
            return float(measure * weight * character(z.sum()).real) / (6 * 4 * np.pi**2)

        # The integrand is periodic, so that equidistant points converge exponentially.
        angles = np.arange(48) * 2 * np.pi / 48
        values = [integrand(x, y) for x in angles for y in angles]
        return float(np.mean(values)) * 4 * np.pi**2

    expansion = expand_characters(beta, 3)
    np.testing.assert_allclose(expansion.dimension[:6], [1, 3, 6, 3, 10, 8])
    assert expansion.a[0] == pytest.approx(integral(lambda t: np.array(1 + 0j)), rel=1e-10)
    assert expansion.a[1] == pytest.approx(integral(lambda t: t) / 3, rel=1e-10)
    # chi_6 = (t^2 + t of the square)/2 = t^2 - conj(t); chi_8 = |t|^2 - 1
    assert expansion.a[2] == pytest.approx(integral(lambda t: t**2 - np.conj(t)) / 6, rel=1e-10)
    assert expansion.a[5] == pytest.approx(integral(lambda t: abs(t) ** 2 - 1 + 0j) / 8, rel=1e-10)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("beta", [-2.1, 0.7, 5.0])
def test_slopes_are_derivatives(n, beta):
    expansion, h = expand_characters(beta, n), 1e-4
    up, down = expand_characters(beta + h, n), expand_characters(beta - h, n)
    shared = min(len(one.a) for one in (expansion, up, down))
    slopes = (up.a[:shared] - down.a[:shared]) / (2 * h)
    np.testing.assert_allclose(expansion.slope[:shared], slopes, rtol=1e-6, atol=1e-9)
    assert expansion.u_slope == pytest.approx((up.u - down.u) / (2 * h), rel=1e-6)
    slope = (compute_torus_log_z(beta + h, n, 6) - compute_torus_log_z(beta - h, n, 6)) / (12 * h)
    assert compute_torus_plaquette(beta, n, 6) == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize(
    ("n", "beta", "log_z", "plaquette"),
    [
        (3, 0.5, 10.962439, 0.02893176),
        (3, 1.0, 45.020141, 0.06013021),
        (3, 2.0, 189.1096, 0.128810),
        (3, 3.0, 444.53, 0.20497),
        (2, 0.5, 47.767260, 0.12383033),
        (2, 1.0, 188.945, 0.24303),
    ],
)
def test_strong_coupling_in_four_dimensions(n, beta, log_z, plaquette):
    series = compute_known(GaugeAction(ActionOptions(beta=beta), Lattice((4, 4, 4, 4), n)))

    def rounded(value: float, like: float) -> float:
        return round(value, len(repr(like).split(".")[1]))

    assert rounded(series.log_z, log_z) == pytest.approx(log_z, abs=1.5e-6)
    np.testing.assert_allclose(series.planes, plaquette, atol=6e-6)
    assert 0 < series.log_z_uncertainty < 0.05


def test_strong_coupling_in_three_dimensions():
    series = compute_known(GaugeAction(ActionOptions(beta=3.0), Lattice((4, 4, 4), 3)))
    np.testing.assert_allclose(series.planes, 0.204023, atol=1e-6)


@pytest.mark.parametrize("extents", [(4, 6), (4, 4, 4), (4, 4, 4, 4)])
def test_plaquettes_are_derivatives_of_log_z(extents):
    """By the anisotropy: sum over planes of sign beta V P."""
    lattice, beta, step = Lattice(extents, 3), 1.2, 1e-4

    def at(anisotropy):
        return compute_known(GaugeAction(ActionOptions(beta=beta, anisotropy=anisotropy), lattice))

    slope = (at(0.1 + step).log_z - at(0.1 - step).log_z) / (2 * step)
    values, signs = at(0.1), GaugeAction(ActionOptions(beta=beta), lattice).signs.numpy()
    assert slope == pytest.approx(beta * lattice.volume * (signs @ values.planes), rel=1e-6)
    named = values.average_plaquettes(lattice)
    if lattice.dimension > 2:
        assert named["plaquette_time"] > named["plaquette"] > named["plaquette_space"]


def test_nothing_is_known_where_a_series_ends():
    lattice = Lattice((4, 4, 4, 4), 3)
    actions = [ActionOptions(beta=5.0), ActionOptions(beta=1.0, name="iwasaki")]
    assert [compute_known(GaugeAction(one, lattice)) for one in actions] == [None, None]
    assert compute_known(GaugeAction(ActionOptions(beta=1.0), Lattice((2, 2, 2), 3))) is None
