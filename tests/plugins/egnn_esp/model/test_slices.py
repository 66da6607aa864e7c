"""A slice with virtual nodes, which exchanges nothing, and the whole structure.

Oracle: the same network on the whole structure.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipeline_atoms.domains.owners import choose_owners
from pipeline_atoms.domains.regions import build_region
from pipeline_core.batch import collate
from pipeline_egnn_esp.data.basis import Basis
from pipeline_kernels.partition import partition
from plugins.egnn_esp import made_up

CUTOFF, N_SLICES = 3.0, 4
BASIS = Basis({"H": (0,), "O": (0, 0, 1)})


@pytest.fixture(scope="module")
def packed():
    sample = made_up.pack_grid(["O", "H", "H"], (8, 1, 1), CUTOFF)
    structure = made_up.read_structure(sample)
    where = (structure.positions, structure.cell, structure.pbc)
    labels = partition(*where, sample["edge_index"], N_SLICES, CUTOFF, "slices")
    return sample, structure, labels


def test_ranks_own_slices(packed):
    _, structure, labels = packed
    ranks = SimpleNamespace(size=N_SLICES)
    assert np.array_equal(choose_owners(structure, CUTOFF, ranks, "slices"), labels)


def predict_slice(module, region):
    """Return what a network says of a region, of which no edge has a reverse in another slice."""
    inputs = collate([region.make_inputs()], torch.float64)
    masked = torch.arange(len(inputs["edge_index"]))
    return module(inputs | {"reverse_edge": masked})["node_blocks"].detach()


@pytest.mark.slow
@pytest.mark.parametrize(("n_layers", "depth"), [(1, 1), (2, 2), (2, 1)])
def test_own_atoms_are_exact_if_virtual_ones_reach_as_far_as_the_layers(packed, n_layers, depth):
    sample, structure, labels = packed
    module = made_up.make_network(BASIS, CUTOFF, layers=n_layers)
    whole = module(made_up.collate_samples(sample))["node_blocks"].detach()
    largest = 0.0
    for part in range(N_SLICES):
        own = np.flatnonzero(labels == part)
        region = build_region(structure, CUTOFF, own, depth)
        reach, edges = set(own.tolist()), sample["edge_index"]
        for _ in range(depth):
            received = edges[np.isin(edges[:, 0], list(reach))]
            reach |= set(received[:, 1].tolist())
        assert len(region.rows) == len(reach) < len(labels)
        assert len(region.edge_index) == len(received)
        difference = (predict_slice(module, region)[: len(own)] - whole[own]).abs()
        largest = max(largest, float(difference.max()))
    scale = float(whole.abs().max())
    if depth < n_layers:
        assert largest > 1e-6 * scale
    else:
        assert largest < 1e-12 * scale
