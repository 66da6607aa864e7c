"""Wigner matrices of edges.

Oracles: e3nn's matrices of the same rotations, and its spherical harmonics of the edges.
"""

import pytest
import torch
from torch.testing import assert_close

from pipeline_kernels.equivariant.wigner import (
    compute_edge_frames,
    count_entries,
    cpu,
    reference,
    rotate,
)
from pipeline_kernels.native import UnavailableError

o3 = pytest.importorskip("e3nn.o3")

LMAX = 6
AXES = [[0, 0, 2], [0, 0, -3], [1e-9, 0, 1], [0, 1e-200, -1], [4, 0, 0], [0, -1, 0], [1, 1, 1]]


@pytest.fixture
def vectors():
    generator = torch.Generator().manual_seed(0)
    many = torch.randn(reference.CHUNK + 1, 3, generator=generator, dtype=torch.float64)
    return torch.cat([torch.tensor(AXES, dtype=torch.float64), many])


def split_blocks(frames, lmax):
    sizes = [(2 * degree + 1) ** 2 for degree in range(lmax + 1)]
    parts = frames.split(sizes, 1)
    return [part.unflatten(1, (2 * n + 1, 2 * n + 1)) for n, part in enumerate(parts)]


def compute_harmonics(degrees, vectors):
    return o3.spherical_harmonics(degrees, vectors, normalize=True, normalization="component")


def test_equal_those_of_e3nn(double_precision, vectors):
    frames = compute_edge_frames(vectors, LMAX)
    assert frames.shape == (len(vectors), count_entries(LMAX))
    result = split_blocks(frames, LMAX)
    turns = result[1]  # degree 1 is the vector itself
    assert_close(turns @ turns.mT, torch.eye(3).expand_as(turns), rtol=0, atol=1e-14)
    assert_close(torch.linalg.det(turns), torch.ones(len(turns)), rtol=0, atol=1e-14)
    # The angle of e3nn, an arc cosine, has half the digits beside the axis.
    fair = (vectors[:, :2].norm(dim=1) == 0) | (vectors[:, :2].norm(dim=1) > 1e-2)
    for degree, D in enumerate(result):
        theirs = o3.Irrep(degree, 1).D_from_matrix(turns[fair])
        assert_close(D[fair], theirs, rtol=0, atol=1e-11)


def test_turn_harmonics_of_the_edge_to_the_polar_axis(double_precision, vectors):
    degrees = list(range(LMAX + 1))
    Y = compute_harmonics(degrees, vectors[:, [1, 2, 0]])
    polar = compute_harmonics(degrees, torch.tensor([0.0, 1, 0]))
    turned = rotate(Y[..., None], compute_edge_frames(vectors, LMAX))[..., 0]
    assert_close(turned, polar.expand_as(turned), rtol=0, atol=1e-13)


def test_an_edge_along_z_is_not_turned():
    frames = compute_edge_frames(torch.tensor([[0, 0, 5.0]], dtype=torch.float64), 3)
    for D in split_blocks(frames, 3):
        assert_close(D[0], torch.eye(D.shape[1], dtype=torch.float64), rtol=0, atol=1e-14)


def test_transposed_turns_back(vectors):
    frames = compute_edge_frames(vectors, 3)
    x = torch.randn(len(vectors), 16, 2, generator=torch.Generator().manual_seed(1)).double()
    assert_close(rotate(rotate(x, frames), frames, transposed=True), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_are_exact_in_each_type(vectors, dtype):
    frames = compute_edge_frames(vectors, 4, dtype)
    assert frames.dtype == dtype
    assert torch.equal(frames, compute_edge_frames(vectors, 4).to(dtype))
    assert compute_edge_frames(vectors.to(dtype), 4).dtype == dtype


@pytest.mark.parametrize("lmax", [0, 1, 2, 5, 8])
def test_c_equals_the_reference(vectors, lmax):
    far = vectors[7:]  # beside the axis the angle about the edge is free
    for dtype in (torch.float32, torch.float64):
        actual, expected = (body.build_frames(far, lmax, dtype) for body in (cpu, reference))
        assert actual.dtype == expected.dtype == dtype
        assert_close(actual, expected, rtol=0, atol=1e-13 if dtype == torch.float64 else 1e-6)


def test_without_a_compiler_they_are_those_of_the_reference(vectors, monkeypatch):
    def refuse(*_, **__):
        raise UnavailableError("none")

    monkeypatch.setattr(cpu, "load_library", refuse)
    expected = reference.build_frames(vectors, 3, torch.float64)
    assert torch.equal(compute_edge_frames(vectors, 3), expected)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_do_not_depend_on_the_threads(use_threads, vectors, threads):
    expected = compute_edge_frames(vectors, LMAX)
    with use_threads(threads):
        assert torch.equal(compute_edge_frames(vectors, LMAX), expected)


def test_no_edges():
    assert compute_edge_frames(torch.zeros(0, 3), 4).shape == (0, 165)


@pytest.mark.parametrize(
    ("vectors", "lmax", "message"),
    [
        (torch.zeros(2, 3), 2, "no direction"),
        (torch.full((2, 3), torch.nan), 2, "finite length"),
        (torch.ones(2, 4), 2, r"expected floating numbers of shape \(n_edges, 3\), got .*\(2, 4\)"),
        (torch.ones(2, 3, dtype=torch.int64), 2, "got torch.int64"),
        (torch.ones(2, 3), -1, "lmax: expected at least 0, got -1"),
    ],
)
def test_what_has_no_frame_is_refused(vectors, lmax, message):
    with pytest.raises(ValueError, match=message):
        compute_edge_frames(vectors, lmax)
