"""Markov chains side by side."""

import pytest
import torch

from pipeline_gauge_flows.datasets import ActionOptions, HmcOptions
from pipeline_gauge_flows.ensembles.chains import HmcChains, refuse_stuck
from pipeline_gauge_flows.lattice import Lattice


def test_a_chain_that_never_moves_is_refused_and_one_that_rests_is_not():
    accepted = torch.ones(64, 40, dtype=torch.bool)
    accepted[3] = False
    with pytest.raises(ValueError, match=r"1 of 64 chains accepted none of 40 .*n_steps"):
        refuse_stuck(accepted)
    accepted[3, 20] = True
    refuse_stuck(accepted)
    # One of sixteen that refuses five times where every third is refused is no wonder.
    few = torch.rand(16, 5, generator=torch.Generator().manual_seed(0)) < 2 / 3
    few[0] = False
    refuse_stuck(few)


@pytest.mark.parametrize("thermalised", [False, True])
def test_steps_that_are_too_long_are_found_with_the_thermalisation_and_after(thermalised):
    options = HmcOptions(
        method="hmc", n_configurations=2, chains=2, start="cold", n_steps=1, tau=3.0
    )
    chains = HmcChains(ActionOptions(beta=60.0), Lattice((2, 2), 3), options, 100)
    for _ in range(110):
        chains.update()
    with pytest.raises(ValueError, match=r"2 of 2 chains accepted none of 110"):
        chains.summarize() if thermalised else chains.begin()
