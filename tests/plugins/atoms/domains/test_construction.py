"""Domains fit each other, know the reverse of each edge, and hold no more than a part.

Ranks are threads of this process, with messages through queues. Oracles: the graph of the whole
structure, and its account of who needs what.
"""

import numpy as np
import pytest
import torch

from pipeline_atoms.domains.construction import build_domain
from pipeline_atoms.graphs import build_neighbour_graph, find_reverse_edges
from pipeline_atoms.structure import Structure
from pipeline_atoms.testing.rank_threads import run_on_threads
from pipeline_kernels.halo import exchange

CUTOFF = 3.0


def pack_grid(widths=(6, 2, 1), seed=0):
    """Atoms near the points of a grid in a skewed periodic cell, some of it thinner than an edge is
    long."""
    rng = np.random.default_rng(seed)
    points = np.stack(np.meshgrid(*map(np.arange, widths), indexing="ij"), -1).reshape(-1, 3)
    shear = np.array([[1.0, 0, 0], [0.2, 1, 0], [-0.1, 0.15, 1]])
    positions = 2.2 * (points + rng.uniform(-0.2, 0.2, points.shape)) @ shear
    cell = 2.2 * np.array(widths)[:, None] * shear
    return Structure(np.ones(len(points), np.int32), positions, cell, np.ones(3, bool))


@pytest.mark.parametrize("n", [1, 2, 4])
def test_domains_fit_each_other(n):
    structure = pack_grid()
    owners = np.random.default_rng(n).integers(n, size=12)
    index, shift, _ = build_neighbour_graph(*_find_places(structure), CUTOFF)
    reverse = find_reverse_edges(index, shift)

    def work(transport):
        """Exchange the numbers of atoms and of edges in the whole structure."""
        domain = build_domain(structure, CUTOFF, owners, transport)
        mine = torch.from_numpy(np.flatnonzero(owners[index[:, 0]] == transport.rank))
        atoms = exchange(domain.atoms.own.double(), domain.atoms, transport)
        edges = exchange(mine.double(), domain.edges, transport)
        return domain, mine, atoms.long(), edges.long()

    for rank, (domain, mine, atoms, edges) in enumerate(run_on_threads(n, work)):
        assert (owners[domain.rows[: domain.n_own]] == rank).all()
        assert atoms.tolist() == domain.rows.tolist()
        np.testing.assert_array_equal(domain.rows[domain.edge_index.numpy()], index[mine])
        np.testing.assert_array_equal(domain.edge_shift, shift[mine])
        np.testing.assert_array_equal(edges[domain.reverse_edge], reverse[mine])
        inner = owners[index[mine][:, 1]] == rank
        np.testing.assert_array_equal(domain.interior, np.flatnonzero(inner))
        both = torch.cat([domain.interior, domain.boundary])
        assert both[domain.order].tolist() == list(range(domain.n_edges))


def test_no_rank_of_four_holds_a_structure():
    """By the sizes of all arrays that grow with edges; those of atoms are small."""
    structure = pack_grid((24, 2, 2))
    owners = np.repeat(np.arange(4), 24)
    n_edges = len(build_neighbour_graph(*_find_places(structure), CUTOFF)[0])

    def work(transport):
        return build_domain(structure, CUTOFF, owners, transport)

    domains = run_on_threads(4, work)
    assert sum(domain.n_edges for domain in domains) == n_edges
    for domain in domains:
        assert domain.n_edges < 0.3 * n_edges
        assert len(domain.rows) < 0.5 * len(owners)
        arrays = [domain.edge_index, domain.edge_shift, domain.reverse_edge, domain.interior]
        arrays += [domain.boundary, domain.edges.own, domain.edges.halo, domain.edges.send.index]
        assert max(map(len, arrays)) <= domain.n_edges


def test_reverse_edges_are_those_of_a_dictionary():
    index, shift, _ = build_neighbour_graph(*_find_places(pack_grid()), CUTOFF)
    ends = [tuple(edge) for edge in np.concatenate([index, shift], axis=1).tolist()]
    numbers = {edge: number for number, edge in enumerate(ends)}
    expected = [numbers[j, i, -a, -b, -c] for i, j, a, b, c in ends]
    assert find_reverse_edges(index, shift).tolist() == expected
    assert ((index[:, 0] == index[:, 1]) & (expected != np.arange(len(index)))).any()
    assert not len(find_reverse_edges(index[:0], shift[:0]))


def test_an_edge_without_reverse_is_named():
    index, shift = np.array([[1, 0], [2, 3], [3, 2]]), np.zeros((3, 3), np.int64)
    with pytest.raises(ValueError, match=r"1 edges lack the reverse edge, .* atoms 1 and 0"):
        find_reverse_edges(index, shift)


def _find_places(structure):
    return structure.positions, structure.cell, structure.pbc
