"""What is known exactly, by planes of a lattice.

Oracles: strong-coupling series of equal planes; derivatives of log Z.
"""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_gauge_flows.actions import ActionOptions, GaugeAction
from pipeline_gauge_flows.evaluation.theory import compute_known
from pipeline_gauge_flows.exact import expand_strong_coupling
from pipeline_gauge_flows.lattice import Lattice


@pytest.mark.parametrize(("extents", "beta", "n"), [((4, 4, 4), 1.5, 3), ((4, 4, 4, 4), 0.8, 2)])
def test_the_series_of_planes_is_that_of_equal_planes(extents, beta, n):
    lattice = Lattice(extents, n)
    values = compute_known(GaugeAction(ActionOptions(beta=beta), lattice))
    expected = expand_strong_coupling(beta, lattice)
    assert values.how == "strong coupling"
    assert values.log_z == pytest.approx(expected.log_z, rel=1e-13)
    np.testing.assert_allclose(values.planes, expected.plaquette, rtol=1e-12)
    assert 0 < values.log_z_uncertainty < 0.05


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
