"""Weights of configurations that a flow draws, and of those that it maps back.

Oracle: a flow that is exact since its target is its own density.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipeline_gauge_flows.data.lattice import Lattice, draw_hot
from pipeline_gauge_flows.data.observables import plaquette
from pipeline_gauge_flows.evaluation.observables import Observables
from pipeline_gauge_flows.evaluation.options import ObservableOptions
from pipeline_gauge_flows.evaluation.series import draw_series, map_back, split_chains
from pipeline_gauge_flows.training.samples import HaarSamples
from plugins.gauge_flows.small import OwnDensity, make_flow
from plugins.gauge_flows.trained import ONE


class Kept:
    """Configurations in memory, as an `Ensemble` gives them."""

    def __init__(self, links):
        self._links = links

    def read_links(self, numbers):
        return self._links[numbers]


@pytest.mark.parametrize("kind", ["learned", "residual"])
def test_an_exact_flow_has_equal_weights(kind):
    """Forth for samples of its own, and back for any links."""
    flow = make_flow(kind, Lattice((4, 4), 3), [("direction", 1)])
    samples = HaarSamples(flow.lattice, 6, 5, "test", torch.complex128)
    observables, density = Observables(ObservableOptions(), flow.lattice), OwnDensity(flow)
    there = draw_series(flow, density, samples, observables, 4, ONE)
    assert np.abs(there["action"]).max() > 0.1
    assert np.abs(there["log_weight"]).max() < 1e-9
    links = draw_hot(flow.lattice, 5, torch.Generator().manual_seed(1))
    back = map_back(flow, density, (Kept(links), np.arange(5)), observables, 2, ONE)
    assert np.abs(back["log_weight"]).max() < 1e-9
    np.testing.assert_allclose(back["plaquette"], plaquette(links, flow.lattice))


def test_chains_keep_their_autocorrelation_when_few_are_chosen():
    ensemble = SimpleNamespace(chain=np.repeat([0, 1, 2], 100), tau_int=4.5)
    whole = split_chains(ensemble, np.arange(100, 300))
    assert [rows.tolist() for rows in whole.rows] == [[*range(100)], [*range(100, 200)]]
    assert whole.tau_int == 4.5
    part = split_chains(ensemble, np.arange(0, 300, 10))
    assert [len(rows) for rows in part.rows] == [10, 10, 10]
    assert part.tau_int == pytest.approx(0.9)  # a half, and a tenth of the four beyond
    assert (
        split_chains(SimpleNamespace(chain=ensemble.chain, tau_int=None), np.arange(9)).tau_int
        is None
    )


def test_a_weight_that_is_not_finite_is_refused():
    flow = make_flow("plaquette", Lattice((4, 4), 3), [("direction", 1)])
    samples = HaarSamples(flow.lattice, 6, 5, "test", torch.complex128)

    def action(links):
        values = plaquette(links, flow.lattice)
        values[-1] = math.nan
        return values

    with pytest.raises(ValueError, match="weight of configuration 2 is not finite"):
        draw_series(flow, action, samples, Observables(ObservableOptions(), flow.lattice), 3, ONE)
