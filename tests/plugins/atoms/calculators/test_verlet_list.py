"""Verlet lists of one rank and of several, against a graph built from nothing at each step."""

from types import SimpleNamespace

import ase.build
import numpy as np
import pytest
import torch
from ase.geometry import wrap_positions

from pipeline_atoms.calculators import part_builders
from pipeline_atoms.calculators.part_builders import DomainBuilder, RegionBuilder
from pipeline_atoms.calculators.verlet_list import StructureGraphBuilder, VerletList
from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.graphs import build_graph
from pipeline_atoms.structure import Structure

OPTIONS = GraphOptions(cutoff=4.2, angle_cutoff=3.0)
SLAB = ase.build.fcc111("Cu", (2, 2, 2), a=3.6, vacuum=6.0)
CRYSTAL = ase.build.bulk("Cu", "fcc", 3.6, cubic=True)


def make_structure(atoms):
    return Structure(atoms.numbers, atoms.positions, np.array(atoms.cell), atoms.pbc)


class Whole:
    """The list of one rank."""

    has_angles = True

    def __init__(self):
        self.lists = [VerletList(StructureGraphBuilder(OPTIONS))]

    @property
    def n_searches(self):
        (count,) = {one.n_searches for one in self.lists}
        return count

    def update(self, atoms):
        """Return positions, the graph, and numbers of local rows and of own ones, of each rank."""
        return [self.read(one, *one.update(make_structure(atoms))) for one in self.lists]

    def read(self, one, positions, graph):
        return positions, graph, np.arange(len(positions)), len(positions)


class Parts(Whole):
    """Lists of three ranks, none of which needs messages."""

    def __init__(self):
        ranks = [
            SimpleNamespace(rank=rank, size=3, device=torch.device("cpu")) for rank in range(3)
        ]
        self.builders = [self.make_builder(OPTIONS, one, torch.float64, "slices") for one in ranks]
        self.lists = [VerletList(builder) for builder in self.builders]


class Domains(Parts):
    make_builder = DomainBuilder

    def read(self, one, positions, graph):
        batch, domain = graph
        arrays = {name: tensor.numpy() for name, tensor in batch.items()}
        return positions, arrays, domain.rows, domain.n_own


class Regions(Parts):
    has_angles = False

    def make_builder(self, *options):
        return RegionBuilder(*options, n_hops=2)

    def read(self, one, positions, graph):
        builder = self.builders[self.lists.index(one)]
        arrays = {name: tensor.numpy() for name, tensor in graph[0].items()}
        return positions, arrays, builder._region.rows, len(builder.own)


@pytest.fixture(params=[Whole, Domains, Regions], ids=["one rank", "domains", "regions"])
def make_lists(request, monkeypatch):
    monkeypatch.setattr(part_builders, "choose_transport", lambda ranks: ranks)
    return request.param


def describe(parts, cell, has_angles):
    """Return vectors of edges, and with angles those of bonds and of both arms, in one order."""
    rows, arms = [], []
    for positions, graph, numbers, n_own in parts:
        index = graph["edge_index"]
        edges = positions[index[:, 1]] - positions[index[:, 0]] + graph["edge_shift"] @ cell
        columns = [numbers[index], edges]
        if has_angles:
            bonds = edges[graph["bond_edge"]][graph["edge_bond"]]
            columns.append(bonds * np.sign((bonds * edges).sum(1))[:, None])
            angles = graph["angle_edges"]
            arms.append(np.hstack([numbers[index][angles[:, 0]], *edges[angles.T]]))
        rows.append(np.hstack(columns)[index[:, 0] < n_own])
    tables = [np.concatenate(parts) for parts in (rows, arms) if parts]
    return [table[np.lexsort(table.round(6).T)] for table in tables]


def check(lists, atoms):
    """Compare with a graph built from nothing; return the graphs of all ranks."""
    cell = np.array(atoms.cell)
    parts = lists.update(atoms)
    wrapped = wrap_positions(atoms.positions, atoms.cell, atoms.pbc)
    fresh = build_graph({"positions": wrapped, "cell": cell, "pbc": atoms.pbc}, OPTIONS)
    whole = [(wrapped, fresh, np.arange(len(atoms)), len(atoms))]
    ours, expected = (describe(each, cell, lists.has_angles) for each in (parts, whole))
    for one, other in zip(ours, expected, strict=True):
        assert one.shape == other.shape
        assert np.allclose(one, other, atol=1e-9)
    return [graph for _, graph, _, _ in parts]


@pytest.mark.slow
@pytest.mark.parametrize("start", [CRYSTAL, SLAB], ids=["crystal", "slab"])
def test_equals_a_new_graph_while_atoms_come_and_go(make_lists, start):
    rng, atoms, lists = np.random.default_rng(0), start.copy(), make_lists()
    counts = set()
    for _ in range(40):
        atoms.positions += rng.normal([0.02, 0, 0], 0.03, atoms.positions.shape)
        graphs = check(lists, atoms)
        counts.add(tuple(len(graph["edge_index"]) for graph in graphs))
    assert len(counts) > 10
    assert 2 <= lists.n_searches < 30


def test_is_rebuilt_when_an_atom_has_crossed_half_of_the_skin(make_lists):
    atoms, lists = CRYSTAL.copy(), make_lists()
    for way, n_searches in [(0, 1), (0.249, 1), (0.251, 2), (0.49, 2), (0.502, 3)]:
        atoms.positions[2] = CRYSTAL.positions[2] + [0, way, 0]
        check(lists, atoms)
        assert lists.n_searches == n_searches


def test_is_rebuilt_for_another_cell_periodicity_or_other_atoms(make_lists):
    lists = make_lists()
    stretched, open_ended = CRYSTAL.copy(), CRYSTAL.copy()
    stretched.set_cell(1.001 * np.array(stretched.cell), scale_atoms=True)
    open_ended.pbc = [True, True, False]
    alloy = SLAB.copy()
    alloy.numbers[0] = 79
    for n, atoms in enumerate([CRYSTAL, stretched, open_ended, SLAB, alloy, SLAB[:-1], CRYSTAL]):
        check(lists, atoms)
        assert lists.n_searches == n + 1


def test_a_crystal_that_becomes_a_cluster_loses_the_edges_across_its_cell(make_lists):
    atoms, lists = ase.build.bulk("Cu", "fcc", 4.0, cubic=True).repeat(2), make_lists()
    for pbc, n_edges in [(True, 32 * (12 + 6)), (False, 312)]:  # as ase.neighborlist finds
        atoms.pbc = pbc
        receivers = [(part[1]["edge_index"][:, 0], part[3]) for part in lists.update(atoms)]
        assert sum(np.count_nonzero(index < n_own) for index, n_own in receivers) == n_edges


def test_a_graph_is_built_once_for_the_same_edges(make_lists):
    atoms, lists = CRYSTAL.copy(), make_lists()

    def build():
        check(lists, atoms)
        return [one.update(make_structure(atoms))[1] for one in lists.lists]

    first = build()
    atoms.positions[0, 0] += 1e-3
    assert all(one is other for one, other in zip(build(), first, strict=True))
    atoms.positions[0] += 0.24 * np.array([2, 1, 1]) / 6**0.5  # towards neighbours at 4.41 Å
    assert not all(one is other for one, other in zip(build(), first, strict=True))


@pytest.mark.slow
def test_atoms_that_drift_together_stay_close_to_the_cell(make_lists):
    atoms, lists = CRYSTAL.copy(), make_lists()
    for _ in range(12):
        atoms.positions += [0.9, 0.0, -0.9]
        check(lists, atoms)
        for positions, *_ in lists.update(atoms):
            assert -1 < positions.min() <= positions.max() < 4.6


def test_a_structure_that_falls_apart_is_refused_until_it_is_whole():
    atoms, lists = ase.Atoms("Cu2", positions=[[0, 0, 0], [4.1, 0, 0]]), Whole()
    check(lists, atoms)
    for way in (0.2, 0.2, 9.0):
        atoms.positions[1, 0] = 4.1 + way
        with pytest.raises(ValueError, match="no atom has a neighbour"):
            lists.update(atoms)
    atoms.positions[1, 0] = 4.0
    check(lists, atoms)
