"""Convolutions in the frames of edges: what they take, and the formula in plain PyTorch."""

import torch

from kernels.contract import Call
from pipeline_kernels.equivariant.so2 import Table, reference, so2_convolution
from pipeline_kernels.equivariant.wigner import compute_edge_frames
from pipeline_kernels.message import Segments

N_EXTRA = 3
SENDERS, RECEIVERS, EDGES = range(3)
"""Whose features an edge takes."""


def draw_normal(generator, *shape):
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def draw_rows(generator, n_nodes, n_edges):
    """Return the rows that edges take of each table, and its length."""
    ends = torch.randint(max(1, n_nodes), (2, n_edges), generator=generator)
    nodes = Segments.of(ends[0], n_nodes), Segments.of(ends[1].sort().values, n_nodes)
    return [*nodes, None], [n_nodes, n_nodes, n_edges]


def draw_weights(generator, layout, channels, channels_out, singles=()):
    """Return weights of each order, single matrices of some, and a bias."""
    shapes = layout.list_weight_shapes(channels, channels_out, N_EXTRA)
    shapes = [shape[-2:] if m in singles else shape for m, shape in enumerate(shapes)]
    weights = [draw_normal(generator, *shape) / max(1, shape[-2]) ** 0.5 for shape in shapes]
    return [*weights, draw_normal(generator, (layout.lmax + 1) * channels_out + N_EXTRA)]


def draw_convolution(
    generator,
    layout,
    n_nodes=4,
    n_edges=7,
    channels=(2, 1, 3),
    channels_out=2,
    n_factors=None,
    turned=False,
):
    """Return a convolution of features of senders, receivers and edges.

    If some channels are turned, those of the first table are not all, and weights of m > 0 are
    single matrices.
    """
    rows, counts = draw_rows(generator, n_nodes, n_edges)
    tables = [
        draw_normal(generator, n, layout.dim, c) for n, c in zip(counts, channels, strict=True)
    ]
    factors = draw_normal(generator, n_edges, n_factors or layout.lmax + 1, sum(channels))
    singles = range(layout.mmax + 1) if turned else ()
    weights = draw_weights(generator, layout, sum(channels), channels_out, singles)
    frames = compute_edge_frames(draw_normal(generator, n_edges, 3), layout.lmax)
    quarter = tuple(c - c // 2 if turned else 0 for c in channels)
    tensors = [*tables, factors, *weights]
    return Call(convolve, convolve_plainly, tensors, [frames, rows, layout, quarter])


def convolve(*operands):
    *tensors, frames, rows, layout, turned = operands
    *tables, factors = tensors[:4]
    tables = [Table(*table) for table in zip(tables, rows, turned, strict=True)]
    *weights, bias = tensors[4:]
    return so2_convolution(tables, frames, weights, bias, layout, factors, N_EXTRA)


def convolve_plainly(*operands):
    *tensors, frames, rows, layout, turned = operands
    *tables, factors = tensors[:4]
    parts = [
        reference.turn(reference.to_edges(x, frames, None, row and row.index, layout), layout, n)
        for x, row, n in zip(tables, rows, turned, strict=True)
    ]
    *weights, bias = tensors[4:]
    x = scale(torch.cat(parts, 2), factors, layout)
    return mix_orders(x, weights, bias, layout, N_EXTRA)


def mix_orders(x, weights, bias, layout, n_extra):
    """Mix channels and degrees of each order, `y_+ = W_r x_+ - W_i x_-`, `y_- = ...`."""
    n_main = len(bias) - n_extra
    channels = n_main // layout.count_degrees(0)
    main, extra = (x[:, layout.blocks[0]].flatten(1) @ weights[0] + bias).tensor_split([n_main], 1)
    parts = [main.unflatten(1, (-1, channels))]
    for rows, W in zip(layout.blocks[1:], weights[1:], strict=True):
        real, imaginary = W if W.ndim == 3 else (W, torch.zeros_like(W))
        plus, minus = (half.flatten(1) for half in x[:, rows].chunk(2, 1))
        both = plus @ real - minus @ imaginary, plus @ imaginary + minus @ real
        parts += [y.unflatten(1, (-1, channels)) for y in both]
    return torch.cat(parts, 1), extra


def scale(y, factors, layout):
    """Multiply components by order with the factors of their degrees."""
    if factors is None or factors.shape[1] == 1:
        return y if factors is None else y * factors
    return y * factors[:, [degree for degree, _ in layout.places]]
