"""Convolutions in the frames of edges turn as they should.

Oracles: e3nn's `FullyConnectedTensorProduct` with spherical harmonics of the edges, and its Wigner
matrices; rotation.
"""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from kernels.equivariant.so2_case import N_EXTRA, RECEIVERS, convolve, draw_convolution
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

ORDERS = [Layout(2, 2), Layout(4, 4), Layout(4, 2)]


def draw(layout, **options):
    """Return a convolution of edges of some directions, and these in the order of e3nn."""
    generator = torch.Generator().manual_seed(0)
    call = draw_convolution(generator, layout, n_nodes=6, n_edges=40, **options)
    vectors = torch.randn(40, 3, generator=generator)
    frames, *rest = call.constants
    frames = compute_edge_frames(vectors, layout.lmax)
    return replace(call, constants=[frames, *rest]), vectors[:, [1, 2, 0]]


def make_frames(permuted, layout):
    return compute_edge_frames(permuted[:, [2, 0, 1]], layout.lmax)


def convolve_twice(call, tables, frames):
    """Two convolutions with a gate between them, rotated back and summed at receivers."""
    _, rows, layout, turned = call.constants
    channels = (len(call.tensors[-1]) - N_EXTRA) // (layout.lmax + 1)
    y, extra = convolve(*tables, *call.tensors[3:], frames, rows, layout, turned)
    gates = extra.sum(1, keepdim=True).expand(-1, layout.lmax * channels)
    shapes = layout.list_weight_shapes(channels, channels)
    weights = [torch.sin(torch.arange(n.numel()).double()).view(n) for n in map(torch.Size, shapes)]
    bias = call.tensors[-1][:-N_EXTRA]
    z, _ = so2_linear(y, weights, bias, layout, compute_gate_factors(y, gates, layout))
    return from_edges(z, frames, layout, rows[RECEIVERS]), extra


@pytest.mark.parametrize("layout", ORDERS, ids=str)
def test_turns_with_the_structure(double_precision, layout):
    call, permuted = draw(layout)
    tables = call.tensors[:3]
    torch.manual_seed(5)
    turn = o3.rand_matrix()  # of permuted vectors
    degrees = range(layout.lmax + 1)
    D = torch.block_diag(*(o3.Irrep(degree, 1).D_from_matrix(turn) for degree in degrees))
    x, extra = convolve_twice(call, tables, call.constants[0])
    frames = make_frames(permuted @ turn.T, layout)
    result, found_extra = convolve_twice(call, [D @ x for x in tables], frames)
    # The arc cosines from which e3nn makes D lose digits where its angles are small.
    assert_close(result, D @ x, rtol=0, atol=1e-9)
    assert_close(found_extra, extra, rtol=0, atol=1e-9)
    assert x[:, 1:].abs().max() > 0.1


@pytest.mark.parametrize("layout", ORDERS, ids=str)
def test_single_matrices_commute_with_reflections(double_precision, layout):
    """Channels that are turned are of unnatural parity; order 0 has no weights between kinds."""
    call, permuted = draw(layout, channels=(4, 3, 2), channels_out=5, turned=True)
    tables, (_, *weights, bias) = call.tensors[:3], call.tensors[3:]
    degrees, turned = range(layout.lmax + 1), 2
    kinds = torch.cat([torch.arange(x.shape[2]) >= x.shape[2] // 2 for x in tables])
    out = torch.arange(5) >= 5 - turned
    out = torch.cat([out.repeat(layout.lmax + 1), torch.zeros(N_EXTRA, dtype=torch.bool)])
    weights[0] *= kinds.repeat(layout.lmax + 1)[:, None] == out
    bias *= ~out
    torch.manual_seed(5)
    mirror = -o3.rand_matrix()  # of permuted vectors
    D = [
        torch.block_diag(*(o3.Irrep(n, sign * (-1) ** n).D_from_matrix(mirror) for n in degrees))
        for sign in (1, -1)
    ]

    def change(x, n_natural):
        parts = x.tensor_split([n_natural], 2)
        return torch.cat([matrix @ part for matrix, part in zip(D, parts, strict=True)], 2)

    def calculate(tables, frames):
        rows = call.constants[1]
        y, extra = convolve(*tables, *call.tensors[3:], frames, *call.constants[1:])
        return from_edges(y, frames, layout, rows[RECEIVERS], None, turned), extra

    x, extra = calculate(tables, call.constants[0])
    frames = make_frames(permuted @ mirror.T, layout)
    result, found_extra = calculate([change(x, x.shape[2] // 2) for x in tables], frames)
    assert_close(result, change(x, 5 - turned), rtol=0, atol=1e-9)
    assert_close(found_extra, extra, rtol=0, atol=1e-9)
    assert x[:, 1:].abs().amax((0, 1)).min() > 0.1


@pytest.mark.parametrize("layout", [Layout(3, 3), Layout(4, 2)], ids=str)
def test_does_not_depend_on_the_angle_about_the_edge(double_precision, layout):
    call, _ = draw(layout)
    frames, tables = call.constants[0], call.tensors[:3]
    angle, zero = torch.tensor(0.7), torch.tensor(0.0)
    spins = [o3.wigner_D(degree, angle, zero, zero) for degree in range(layout.lmax + 1)]
    blocks = frames.split([spin.numel() for spin in spins], 1)
    spun = [
        (spin @ block.unflatten(1, spin.shape)).flatten(1)
        for spin, block in zip(spins, blocks, strict=True)
    ]
    expected = convolve_twice(call, tables, frames)
    result = convolve_twice(call, tables, torch.cat(spun, 1).contiguous())
    assert_close(result, expected, rtol=0, atol=1e-11)


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
