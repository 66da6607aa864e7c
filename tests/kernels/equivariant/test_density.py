"""The density of atoms around the middle of edges.

Oracles: sums over what ase finds around a dummy atom there, with harmonics of e3nn; symmetry.
"""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.neighborlist import neighbor_list
from torch.testing import assert_close

from pipeline_kernels.equivariant.density import DensityBasis, bond_density, cpu, reference
from pipeline_kernels.equivariant.wigner import compute_edge_frames, rotate
from pipeline_kernels.message import Segments
from pipeline_kernels.native import UnavailableError

o3 = pytest.importorskip("e3nn.o3")

BASIS = DensityBasis(lmax=3, n_functions=4, cutoff=2.4, n_kinds=2)
KINDS = {1: 0, 8: 1}


@pytest.fixture
def crystal():
    """A triclinic cell narrower than the cutoff along one axis."""
    cell = [[5.0, 0, 0], [1.0, 4.5, 0], [0.3, -0.4, 2.2]]
    places = np.random.default_rng(0).uniform(size=(7, 3))
    return Atoms("OHOHHOH", cell=cell, scaled_positions=places, pbc=True)


def find_edges(atoms, order=None):
    """Return receivers, senders, shifts and vectors of a graph to twice the cutoff."""
    i, j, S, D = neighbor_list("ijSD", atoms, 2 * BASIS.cutoff)
    result = (i, j, S, D) if order is None else (i[order], j[order], S[order], D[order])
    return (*map(torch.from_numpy, result),)


def make_operands(atoms, edges):
    receivers, senders, _, vectors = edges
    kinds = torch.tensor([KINDS[z] for z in atoms.numbers])[senders]
    return vectors, kinds, Segments.of(receivers, len(atoms))


def project_density(atoms, edges, body=None, basis=BASIS):
    where = make_operands(atoms, edges)
    if body is None:
        return bond_density(*where, basis)
    return body.bond_density(*where, basis, torch.float64)


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


@pytest.mark.parametrize("is_sorted", [True, False], ids=["sorted", "shuffled"])
def test_c_equals_the_reference(crystal, is_sorted, monkeypatch):
    n = len(neighbor_list("i", crystal, 2 * BASIS.cutoff))
    order = None if is_sorted else np.random.default_rng(1).permutation(n)
    edges = find_edges(crystal, order)
    result = project_density(crystal, edges, cpu)
    assert_close(result, project_density(crystal, edges, reference), rtol=0, atol=1e-13)
    monkeypatch.setattr(reference, "PAIRS", 500)  # in pieces
    assert_close(result, project_density(crystal, edges, reference), rtol=0, atol=1e-13)


@pytest.mark.parametrize(("n_functions", "n_kinds"), [(1, 1), (13, 1), (40, 3)])
def test_c_equals_the_reference_for_any_number_of_functions(crystal, n_functions, n_kinds):
    edges, basis = find_edges(crystal), replace(BASIS, n_functions=n_functions, n_kinds=n_kinds)
    vectors, kinds, receivers = make_operands(crystal, edges)
    where = vectors, kinds * (n_kinds > 1), receivers, basis, torch.float64
    assert_close(cpu.bond_density(*where), reference.bond_density(*where), rtol=0, atol=1e-12)


def test_without_a_compiler_it_is_the_reference(crystal, monkeypatch):
    def refuse(*_, **__):
        raise UnavailableError("none")

    edges = find_edges(crystal)
    expected = project_density(crystal, edges)
    monkeypatch.setattr(cpu, "load_library", refuse)
    assert_close(project_density(crystal, edges), expected, rtol=0, atol=1e-12)


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


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_does_not_depend_on_the_threads(use_threads, crystal, threads):
    edges, basis = find_edges(crystal), replace(BASIS, lmax=6)
    with use_threads(threads):
        result = project_density(crystal, edges, cpu, basis)
    assert_close(result, project_density(crystal, edges, reference, basis), rtol=0, atol=1e-11)


@pytest.mark.parametrize("body", [cpu, reference])
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
def test_is_exact_in_each_type(crystal, body, dtype, rtol):
    where = make_operands(crystal, find_edges(crystal))
    result = body.bond_density(*where, BASIS, dtype)
    assert result.dtype == dtype
    exact = body.bond_density(*where, BASIS, torch.float64)
    assert_close(result.double(), exact, rtol=rtol, atol=1e-30)


@pytest.mark.parametrize("body", [cpu, reference])
def test_no_edges(body):
    kinds = torch.zeros(0, dtype=torch.int64)
    where = torch.zeros(0, 3).double(), kinds, Segments.of(kinds, 3)
    assert body.bond_density(*where, BASIS, torch.float32).shape == (0, 16, 8)


def test_is_of_the_type_of_the_vectors(crystal):
    vectors, kinds, receivers = make_operands(crystal, find_edges(crystal))
    assert bond_density(vectors.float(), kinds, receivers, BASIS).dtype == torch.float32


@pytest.mark.parametrize(
    ("vectors", "kinds", "message"),
    [
        (torch.ones(3, 3), torch.zeros(2).long(), r"expected floating numbers of shape \(2, 3\)"),
        (torch.ones(2, 3).long(), torch.zeros(2).long(), "got torch.int64"),
        (torch.ones(2, 3), torch.zeros(2), "kinds: expected int64"),
        (torch.ones(2, 3), torch.tensor([0, 2]), "expected 0 to n_kinds - 1 = 1, got 0 to 2"),
    ],
)
def test_bad_input_is_refused(vectors, kinds, message):
    with pytest.raises(ValueError, match=message):
        bond_density(vectors, kinds, Segments.of(torch.tensor([0, 1]), 2), BASIS)


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="n_functions and n_kinds of at least 1"):
        DensityBasis(3, 0, 2.0, 1)


@pytest.mark.gpu
def test_a_gpu_finds_the_same(gpu, crystal):
    where = make_operands(crystal, find_edges(crystal))
    there = bond_density(*(array.to(gpu) for array in where), BASIS)
    assert_close(there.cpu(), bond_density(*where, BASIS), rtol=0, atol=1e-12)
