"""Wigner matrices of edges.

Oracles: e3nn's matrices of the same rotations, and its spherical harmonics of the edges; C is
compared with plain PyTorch.
"""

import pytest
import torch
from torch.testing import assert_close

from kernels.contract import Call, KernelContract
from pipeline_kernels.equivariant.wigner import (
    compute_edge_frames,
    count_entries,
    reference,
    rotate,
)

o3 = pytest.importorskip("e3nn.o3")

LMAX = 6
AXES = [[0, 0, 2], [0, 0, -3], [1e-9, 0, 1], [0, 1e-200, -1], [4, 0, 0], [0, -1, 0], [1, 1, 1]]


class TestFrames(KernelContract):
    folder = "equivariant/wigner"
    tolerances = {torch.float32: 1e-6, torch.float64: 1e-13}
    options = {"lmax": [5, 0, 1, 2, 8], "n": [40, reference.CHUNK + 1]}
    many, empty = {"n": 3000}, {"n": 0}
    refused = [
        (0, torch.zeros_like, "no direction"),
        (0, lambda x: torch.full_like(x, torch.nan), "finite length"),
        (0, lambda x: x[:, :2], r"expected \(n_edges, 3\) of .*, got \(40, 2\)"),
        (0, torch.Tensor.long, "got .* of torch.int64"),
        (1, lambda _: -1, "lmax: expected at least 0, got -1"),
    ]
    without = {
        "derivatives": "the frames of edges are constants",
        "test_operators_keep_the_rules_of_torch": "not an operator of torch",
        "test_compiles_without_a_graph_break": "not an operator of torch",
    }

    def draw(self, generator, lmax, n):
        vectors = torch.randn(n, 3, generator=generator, dtype=torch.float64)
        return Call(compute_edge_frames, build_frames, [vectors], [lmax])


def build_frames(vectors, lmax):
    return reference.build_frames(vectors, lmax, vectors.dtype)


@pytest.fixture(scope="module")
def vectors():
    generator = torch.Generator().manual_seed(0)
    many = torch.randn(100, 3, generator=generator, dtype=torch.float64)
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


def test_another_type_is_rounded_to(vectors):
    """They are calculated in float64 whatever the type of the vectors."""
    frames = compute_edge_frames(vectors, 4, torch.float32)
    assert torch.equal(frames, compute_edge_frames(vectors, 4).float())
