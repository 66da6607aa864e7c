"""Convolutions in the frames of edges turn as they should.

Oracles: e3nn's `FullyConnectedTensorProduct` with spherical harmonics of the edges, and its Wigner
matrices; rotation.
"""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from kernels.equivariant.so2_case import IMPLEMENTATIONS, N_EXTRA, Case, use_implementation
from pipeline_kernels.equivariant.so2 import (
    Layout,
    Table,
    compute_gate_factors,
    from_edges,
    so2_convolution,
    so2_linear,
)
from pipeline_kernels.equivariant.wigner import compute_edge_frames

o3 = pytest.importorskip("e3nn.o3")


@pytest.fixture(scope="module", params=IMPLEMENTATIONS)
def implementation(request):
    with use_implementation(request.param):
        yield


def convolve_twice(case, tables, frames):
    """Two convolutions with a gate between them, rotated back and summed at receivers."""
    layout, factors, rows = case.layout, case.factors, case.rows
    channels = (len(case.bias) - N_EXTRA) // (layout.lmax + 1)
    tables = [Table(*table) for table in zip(tables, rows, strict=True)]
    y, extra = so2_convolution(tables, frames, case.weights, case.bias, layout, factors, N_EXTRA)
    gates = extra.sum(1, keepdim=True).expand(-1, layout.lmax * channels)
    shapes = layout.list_weight_shapes(channels, channels)
    weights = [torch.sin(torch.arange(n.numel()).double()).view(n) for n in map(torch.Size, shapes)]
    bias = case.bias[:-N_EXTRA]
    z, _ = so2_linear(y, weights, bias, layout, compute_gate_factors(y, gates, layout))
    return from_edges(z, frames, layout, rows[1]), extra


@pytest.mark.parametrize("layout", [Layout(2, 2), Layout(4, 4), Layout(4, 2)], ids=str)
def test_turns_with_the_structure(implementation, double_precision, layout):
    case = Case.of(layout, n_nodes=6, n_edges=40)
    torch.manual_seed(5)
    turn = o3.rand_matrix()  # of permuted vectors
    degrees = range(layout.lmax + 1)
    D = torch.block_diag(*(o3.Irrep(degree, 1).D_from_matrix(turn) for degree in degrees))
    permuted = case.vectors[:, [1, 2, 0]] @ turn.T
    turned_frames = compute_edge_frames(permuted[:, [2, 0, 1]], layout.lmax)
    turned = [torch.einsum("ij,njc->nic", D, x) for x in case.tables]
    x, extra = convolve_twice(case, case.tables, case.frames)
    result, found_extra = convolve_twice(case, turned, turned_frames)
    # The arc cosines from which e3nn makes D lose digits where its angles are small.
    assert_close(result, torch.einsum("ij,njc->nic", D, x), rtol=0, atol=1e-9)
    assert_close(found_extra, extra, rtol=0, atol=1e-9)
    assert x[:, 1:].abs().max() > 0.1


@pytest.mark.parametrize("layout", [Layout(2, 2), Layout(4, 4), Layout(4, 2)], ids=str)
def test_single_matrices_commute_with_reflections(implementation, double_precision, layout):
    """Channels that are turned are of unnatural parity; order 0 has no weights between kinds."""
    case = Case.of(layout, n_nodes=6, n_edges=40, channels=(4, 3, 2), channels_out=5, turned=True)
    degrees, turned = range(layout.lmax + 1), 2
    kinds = torch.cat([torch.arange(x.shape[2]) >= x.shape[2] // 2 for x in case.tables])
    out = torch.arange(5) >= 5 - turned
    out = torch.cat([out.repeat(layout.lmax + 1), torch.zeros(N_EXTRA, dtype=torch.bool)])
    case.weights[0] *= kinds.repeat(layout.lmax + 1)[:, None] == out
    case.bias *= ~out
    torch.manual_seed(5)
    mirror = -o3.rand_matrix()  # of permuted vectors
    D = [
        torch.block_diag(*(o3.Irrep(n, sign * (-1) ** n).D_from_matrix(mirror) for n in degrees))
        for sign in (1, -1)
    ]

    def change(x, n_natural):
        parts = x.tensor_split([n_natural], 2)
        return torch.cat(
            [torch.einsum("ij,njc->nic", *two) for two in zip(D, parts, strict=True)], 2
        )

    def convolve(tables, frames):
        mine = replace(case, tables=tables, frames=frames)
        y, extra = mine.result()
        return from_edges(y, frames, layout, case.rows[1], None, turned), extra

    permuted = case.vectors[:, [1, 2, 0]] @ mirror.T
    frames = compute_edge_frames(permuted[:, [2, 0, 1]], layout.lmax)
    x, extra = convolve(case.tables, case.frames)
    result, found_extra = convolve([change(x, x.shape[2] // 2) for x in case.tables], frames)
    assert_close(result, change(x, 5 - turned), rtol=0, atol=1e-9)
    assert_close(found_extra, extra, rtol=0, atol=1e-9)
    assert x[:, 1:].abs().amax((0, 1)).min() > 0.1


@pytest.mark.parametrize("layout", [Layout(3, 3), Layout(4, 2)], ids=str)
def test_does_not_depend_on_the_angle_about_the_edge(double_precision, layout):
    case = Case.of(layout, n_edges=9)
    angle, zero = torch.tensor(0.7), torch.tensor(0.0)
    spins = [o3.wigner_D(degree, angle, zero, zero) for degree in range(layout.lmax + 1)]
    sizes = [(2 * degree + 1) ** 2 for degree in range(layout.lmax + 1)]
    blocks = case.frames.split(sizes, 1)
    spun = [
        (spin @ block.unflatten(1, spin.shape)).flatten(1)
        for spin, block in zip(spins, blocks, strict=True)
    ]
    x, extra = convolve_twice(case, case.tables, case.frames)
    result, found_extra = convolve_twice(case, case.tables, torch.cat(spun, 1).contiguous())
    assert_close(result, x, rtol=0, atol=1e-11)
    assert_close(found_extra, extra, rtol=0, atol=1e-11)


def test_equals_a_tensor_product_with_all_harmonics(double_precision):
    """Passaro and Zitnick, arXiv:2302.03655: the maps are the same where all orders are kept."""
    lmax, channels, channels_out, n = 2, 3, 2, 11
    layout = Layout(lmax, lmax)
    inputs, results = (
        o3.Irreps([(c, (degree, 1)) for degree in range(lmax + 1)])
        for c in (channels, channels_out)
    )
    degrees = list(range(2 * lmax + 1))
    product = o3.FullyConnectedTensorProduct(
        inputs, o3.Irreps([(1, (degree, 1)) for degree in degrees]), results
    )
    vectors, x = torch.randn(n, 3), torch.randn(n, layout.dim, channels)

    def e3nn(x, directions):
        parts = x.split([2 * degree + 1 for degree in range(lmax + 1)], 1)
        flat = torch.cat([part.mT.flatten(1) for part in parts], 1)
        Y = o3.spherical_harmonics(degrees, directions, True, "component")
        parts = product(flat, Y).split([part.dim for part in results], 1)
        return torch.cat([part.unflatten(1, (channels_out, -1)).mT for part in parts], 1)

    n_in = layout.dim * channels
    basis = torch.eye(n_in).view(n_in, layout.dim, channels)
    matrix = e3nn(basis, torch.tensor([[0.0, 1, 0]]).expand(n_in, 3))
    matrix = matrix.view(layout.dim, channels, layout.dim, channels_out)[layout.sources, :]
    matrix = matrix[:, :, layout.sources]
    weights = []
    for m, rows in enumerate(layout.blocks):
        k = layout.count_degrees(m)
        block = matrix[rows, :, rows]
        real, imaginary = block[:k, :, :k], block[:k, :, k:]
        pair = [real, imaginary] if m else [real]
        parts = [part.reshape(k * channels, k * channels_out) for part in pair]
        weights.append(torch.stack(parts) if m else parts[0])
    bias = torch.zeros((lmax + 1) * channels_out)
    frames = compute_edge_frames(vectors, lmax)
    y, _ = so2_convolution([Table(x)], frames, [W.detach() for W in weights], bias, layout)
    expected = e3nn(x, vectors[:, [1, 2, 0]]).detach()
    assert_close(from_edges(y, frames, layout), expected, rtol=0, atol=1e-11)
    assert weights[1][1].abs().max() > 0.01
    assert expected.abs().max() > 0.1
