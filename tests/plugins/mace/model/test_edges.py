"""Pairs of edges that share a distance. Oracle: a search of all edges; the network with weights of
each edge for itself."""

import pytest
import torch
from ase.build import bulk, molecule
from torch.testing import assert_close

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.testing.potentials import build_batch
from pipeline_kernels.equivariant.mixed_product import Graph
from pipeline_mace.model.edges import EdgePlan, find_pairs, plan_edges
from pipeline_mace.model.network import MACE, Facts
from pipeline_mace.options import MACEOptions

GRAPH = GraphOptions(cutoff=4.5, isolated="keep")


def make_batch():
    """Structures whose atoms meet their own images, and others; a molecule; one atom alone."""
    cell = bulk("Cu", cubic=True)
    cell.rattle(0.1, seed=0)
    structures = [bulk("Al"), cell, molecule("CH3CH2OH", vacuum=3), molecule("H")]
    return build_batch(structures, GRAPH, torch.float64)


def test_an_edge_and_its_reverse_are_a_pair():
    batch = make_batch()
    index, shift = batch["edge_index"], batch["edge_shift"]
    pair = find_pairs(index, shift, len(batch["positions"])).tolist()
    edges = [(r, s, *cell) for (r, s), cell in zip(index.tolist(), shift.tolist(), strict=True)]
    place = {edge: n for n, edge in enumerate(edges)}
    reverse = [place[s, r, -x, -y, -z] for r, s, x, y, z in edges]
    assert len(set(pair)) == len(edges) // 2 == max(pair) + 1
    assert all(pair[n] == pair[other] for n, other in enumerate(reverse))


def test_numbers_too_large_for_a_key_leave_each_edge_for_itself():
    index, shift = torch.tensor([[0, 1], [1, 0]]), torch.zeros(2, 3, dtype=torch.int64)
    assert find_pairs(index, shift, 3).tolist() == [0, 0]
    assert find_pairs(index, shift, 2**33).tolist() == [0, 1]


def share_nothing(batch):
    graph = plan_edges(batch).graph
    return EdgePlan(Graph.unshared(graph.senders, graph.receivers), None)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_l": 2, "channels": 3, "normalization": "density", "distance_transform": "agnesi"},
        {"kernels": "reference", "pair_repulsion": True},
    ],
    ids=["default", "density", "reference"],
)
def test_sharing_changes_nothing(monkeypatch, options):
    batch, results = make_batch(), []
    for plan in (plan_edges, share_nothing):
        monkeypatch.setattr("pipeline_mace.model.network.plan_edges", plan)
        torch.manual_seed(0)
        chosen = MACEOptions(**{"channels": 8} | options)
        network = MACE(chosen, Facts(("H", "C", "O", "Al", "Cu"), 20.0), GRAPH).double()
        outputs = network(batch)
        loss = sum(output.square().sum() for output in outputs.values())
        parameters = [p for p in network.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        results.append([*outputs.values(), *(g for g in gradients if g is not None)])
    for one, other in zip(*results, strict=True):
        assert_close(one, other, rtol=1e-9, atol=1e-9 * float(other.detach().abs().max()))
