"""The density of atoms around the middle of edges.

Oracles: sums over what ase finds around a dummy atom there, with harmonics of e3nn; symmetry; C is
compared with plain PyTorch.
"""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.neighborlist import neighbor_list
from hypothesis import strategies as st
from torch.testing import assert_close

from kernels.contract import Call, KernelContract
from pipeline_kernels.equivariant.density import DensityBasis, bond_density, cpu, reference
from pipeline_kernels.equivariant.wigner import compute_edge_frames, rotate
from pipeline_kernels.message import Segments

o3 = pytest.importorskip("e3nn.o3")

BASIS = DensityBasis(lmax=3, n_functions=4, cutoff=2.4, n_kinds=2)
KINDS = {1: 0, 8: 1}


def sum_plainly(vectors, kinds, receivers, basis):
    return reference.bond_density(vectors, kinds, receivers, basis, vectors.dtype)


class TestDensity(KernelContract):
    folder = "equivariant/density"
    tolerances = {torch.float32: 1e-6, torch.float64: 1e-13}
    options = {
        "n_edges": [90, 3],
        "functions": [(4, 2), (1, 1), (13, 1), (40, 3)],
        "lmax": [3, 6],
        "ordered": [True, False],
    }
    many, empty, random = {"n_edges": 500}, {"n_edges": 0}, {"n_edges": st.integers(0, 60)}
    refused = [
        (0, lambda x: x[1:], r"vectors: expected \(90, 3\)"),
        (0, torch.Tensor.long, "got .* of torch.int64"),
        (1, torch.Tensor.float, "kinds: expected .* of torch.int64"),
        (1, lambda kinds: kinds + 1, "expected 0 to n_kinds - 1 = 1, got 1 to 2"),
    ]
    without = {
        "derivatives": "forces of its model are no derivatives",
        "test_operators_keep_the_rules_of_torch": "not an operator of torch",
        "test_compiles_without_a_graph_break": "not an operator of torch",
    }

    def draw(self, generator, n_edges, functions, lmax, ordered):
        """Edges of six atoms, two of which see none."""
        vectors = torch.randn(n_edges, 3, generator=generator, dtype=torch.float64)
        n_functions, n_kinds = functions
        kinds, receivers = torch.arange(n_edges) % n_kinds, torch.arange(n_edges) % 5 % 4
        receivers = receivers.sort().values if ordered else receivers
        basis = replace(BASIS, n_functions=n_functions, n_kinds=n_kinds, lmax=lmax)
        constants = [kinds, Segments.of(receivers, 6), basis]
        return Call(bond_density, sum_plainly, [2 * vectors], constants)


@pytest.fixture(scope="module")
def crystal():
    """A triclinic cell narrower than the cutoff along one axis."""
    cell = [[5.0, 0, 0], [1.0, 4.5, 0], [0.3, -0.4, 2.2]]
    places = np.random.default_rng(0).uniform(size=(7, 3))
    return Atoms("OHOHHOH", cell=cell, scaled_positions=places, pbc=True)


def find_edges(atoms):
    """Return receivers, senders, shifts and vectors of a graph to twice the cutoff."""
    return (*map(torch.from_numpy, neighbor_list("ijSD", atoms, 2 * BASIS.cutoff)),)


def make_operands(atoms, edges):
    receivers, senders, _, vectors = edges
    kinds = torch.tensor([KINDS[z] for z in atoms.numbers])[senders]
    return vectors, kinds, Segments.of(receivers, len(atoms))


def project_density(atoms, edges):
    return bond_density(*make_operands(atoms, edges), BASIS)


def compute_expected(atoms, vector, receiver):
    """Sum over the neighbours of a dummy in the middle of an edge, all but those that it joins."""
    dummy = Atoms("X", positions=[atoms.positions[receiver] + vector / 2])
    i, j, D, d = neighbor_list("ijDd", atoms + dummy, BASIS.cutoff)
    seen = (i == len(atoms)) & (j < len(atoms))
    sums = np.zeros((16, 2, 4))
    for other, place, r in zip(j[seen], D[seen], d[seen], strict=True):
        if np.allclose(place, vector / 2) or np.allclose(place, -vector / 2):
            continue
        u = torch.from_numpy(place[[1, 2, 0]] / sqrt(r**2 + 1))
        Y = o3.spherical_harmonics([0, 1, 2, 3], u, normalize=False, normalization="component")
        g = np.exp(-0.5 * ((sqrt(r**2 + 1) - 1) / 0.4 - np.arange(4)) ** 2)
        g *= (1 - (r / 2.4) ** 2) ** 2
        sums[:, KINDS[atoms.numbers[other]]] += np.outer(Y.numpy(), g)
    return torch.from_numpy(sums).flatten(1)


def test_equals_sums_around_a_dummy(crystal):
    edges = find_edges(crystal)
    density = project_density(crystal, edges)
    assert density.shape == (len(edges[0]), *BASIS.shape) == (len(edges[0]), 16, 8)
    receivers, _, _, vectors = edges
    lengths = vectors.norm(dim=1)
    for edge in (int(lengths.argmin()), int(lengths.argmax()), *range(0, len(vectors), 40)):
        wanted = compute_expected(crystal, vectors[edge].numpy(), int(receivers[edge]))
        assert float(wanted.abs().max()) > 0.1
        assert_close(density[edge], wanted, rtol=0, atol=1e-12)


def test_plain_pytorch_goes_through_pieces(monkeypatch):
    call = TestDensity().make()
    whole = call.reference(*call.tensors, *call.constants)
    monkeypatch.setattr(reference, "PAIRS", 500)
    pieces = call.reference(*call.tensors, *call.constants)
    assert_close(pieces, whole, rtol=0, atol=1e-13 * float(whole.abs().max()))


def test_is_that_of_the_opposite_edge(crystal):
    edges = find_edges(crystal)
    receivers, senders, shifts, _ = (array.numpy() for array in edges)
    rows = np.column_stack([receivers, senders, shifts])
    places = {tuple(row): place for place, row in enumerate(rows.tolist())}
    opposite = np.column_stack([senders, receivers, -shifts]).tolist()
    twin = torch.tensor([places[tuple(row)] for row in opposite])
    density = project_density(crystal, edges)
    assert_close(density[twin], density, rtol=0, atol=1e-12)


def test_turns_with_the_crystal(crystal):
    R = torch.from_numpy(np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))[0])
    R = R * torch.linalg.det(R)
    edges = find_edges(crystal)
    receivers, senders, shifts, vectors = edges
    turned = project_density(crystal, (receivers, senders, shifts, vectors @ R.T))
    before = rotate(project_density(crystal, edges), compute_edge_frames(vectors, BASIS.lmax))
    after = rotate(turned, compute_edge_frames(vectors @ R.T, BASIS.lmax))
    # In the frame of an edge only the angle about the edge is left.
    assert_close(before[:, [0, 2, 6, 12]], after[:, [0, 2, 6, 12]], rtol=0, atol=1e-12)
    size = before.square().sum(1)
    assert_close(after.square().sum(1), size, rtol=0, atol=1e-11 * float(size.max()))


@pytest.mark.parametrize("body", [cpu, reference])
def test_is_smooth_where_an_atom_passes_the_middle(body):
    density = []
    for x in (-1e-3, 0.0, 1e-3):
        vectors = torch.tensor([[0, 0, 2.0], [x, 0, 1.0]]).double()
        where = vectors, torch.tensor([0, 1]), Segments.of(torch.tensor([0, 0]), 1)
        density.append(body.bond_density(*where, BASIS, torch.float64)[0])
    before, there, after = density
    # A cone would leave the change of its slope over the step here, about 1e3.
    assert float(((before - 2 * there + after) / 1e-6).abs().max()) < 30


def test_fades_where_atoms_leave():
    vectors = torch.tensor([[0, 0, 2.0], [0, 2.4 - 1e-6, 1.0]]).double()
    density = bond_density(
        vectors, torch.tensor([0, 1]), Segments.of(torch.tensor([0, 0]), 1), BASIS
    )
    assert 0 < float(density[0].abs().max()) < 1e-9


@pytest.mark.parametrize("body", [cpu, reference])
def test_is_exact_in_half_precision(crystal, body):
    where = make_operands(crystal, find_edges(crystal))
    result = body.bond_density(*where, BASIS, torch.bfloat16)
    assert result.dtype == torch.bfloat16
    exact = body.bond_density(*where, BASIS, torch.float64)
    assert_close(result.double(), exact, rtol=1e-2, atol=1e-30)


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="n_functions and n_kinds of at least 1"):
        DensityBasis(3, 0, 2.0, 1)
