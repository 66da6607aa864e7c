"""SO(2) convolutions as operators of torch: checks, shapes, first derivatives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.checks import REAL, check_tensor
from pipeline_kernels.equivariant.so2 import passes, products
from pipeline_kernels.equivariant.so2.ends import Ends
from pipeline_kernels.equivariant.so2.layout import Layout
from pipeline_kernels.equivariant.so2.op import (
    check_factors,
    check_frames,
    check_turned,
    choose_kernels,
    list_ends,
)
from pipeline_kernels.equivariant.so2.operands import Source
from pipeline_kernels.equivariant.so2.pairs import pack_pair
from pipeline_kernels.message.segments import Segments
from pipeline_kernels.operators import define_derivative, define_operator


@dataclass(frozen=True, eq=False)
class Table:
    """Features from which each edge takes one row.

    Attributes:
        features: `(n, layout.dim, C)`, float32 or float64.
        rows: which row each edge takes; the row of its own number if not given.
        turned: how many of the last channels are turned by a quarter in the frames of edges.
    """

    features: Tensor
    rows: Segments | None = None
    turned: int = 0


def so2_convolution(
    tables: Sequence[Table],
    frames: Tensor,
    weights: Sequence[Tensor],
    bias: Tensor,
    layout: Layout,
    factors: Tensor | None = None,
    n_extra: int = 0,
) -> tuple[Tensor, Tensor]:
    """Gather features, rotate them to the frames of the edges and mix channels and degrees.

    `so2_linear` of rotated features, the channels of the tables side by side; but these are made
    for some edges at a time, in the forward pass and again in the backward pass, and never stored.
    Differentiable once, by tables, factors, weights and bias.

    Args:
        tables: features of `C_t` channels each, and which rows of them edges take.
        frames: from `compute_edge_frames`, `(n_edges, count_entries(lmax))`.
        weights: of each order, of shapes `layout.list_weight_shapes(C, C_out, n_extra)` with the
            sum C of all C_t; see `so2_linear`.
        bias: `((lmax + 1) C_out + n_extra,)`, or one for each edge, `(n_edges, ...)`.
        layout: degrees and orders.
        factors: radial weights `(n_edges, lmax + 1, C)` by degree, or `(n_edges, 1, C)`.
        n_extra: number of additional scalars.

    Returns:
        Features by order `(n_edges, layout.n_rows, C_out)`, and scalars `(n_edges, n_extra)`, in
        the type of the weights, which autocast chooses where it is enabled.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    check_frames(frames, layout)
    if not tables:
        raise ValueError("tables: expected at least one, got none")
    for t, table in enumerate(tables):
        if table.rows is not None:
            table.rows.check(f"tables[{t}].rows", len(frames), frames.device)
        n = len(frames) if table.rows is None else table.rows.n_segments
        shape = n, layout.dim, "C"
        check_tensor(f"tables[{t}].features", table.features, shape, (frames.dtype,), frames.device)
        check_turned(f"tables[{t}].turned", table.turned, table.features)
    features = [table.features for table in tables]
    channels = sum(x.shape[2] for x in features)
    check_factors(factors, channels, frames, layout)
    edges = [x for table in tables for x in list_ends(table.rows, frames)]
    bias = _spread_bias(bias, len(frames))
    packed, bias = _pack_weights(weights, bias, channels, n_extra, layout)
    code = [layout.lmax, layout.mmax, *(table.turned for table in tables)]
    return _convolution(bias, n_extra, features, edges, frames, factors, packed, code)


def so2_linear(
    x: Tensor,
    weights: Sequence[Tensor],
    bias: Tensor,
    layout: Layout,
    factors: Tensor | None = None,
    n_extra: int = 0,
) -> tuple[Tensor, Tensor]:
    """Mix channels and degrees of features in the frames of edges (arXiv:2302.03655).

    Each order m by itself, so that the result turns with the features about the edge:

        y_0 = W_0 x_0 + b,    y_m = W_r x_m - W_i x_-m,    y_-m = W_i x_m + W_r x_-m.

    Weights of m > 0 may be one matrix in place of a pair, W_r without W_i. They are used as they
    are. As two products enter each result, pairs want a variance of `1 / (2 n_m C)` at the start,
    n_m = lmax + 1 - m, that of a layer with `n_m C` inputs times `1 / sqrt(2)`. Differentiable
    once.

    | symbol       | argument                                                                |
    |--------------|-------------------------------------------------------------------------|
    | `x`          | `x`, each component times the factor of its degree and channel          |
    | `W_0`        | `weights[0]`, from the left: rows are inputs `(l, c)`                   |
    | `W_r`, `W_i` | `weights[m][0]` and `weights[m][1]`; or `weights[m]` and 0              |
    | `b`          | `bias`, of all scalars about the edge: also those of l > 0              |

    Args:
        x: features by order `(n_edges, layout.n_rows, C)`.
        weights: of each order, of shapes `layout.list_weight_shapes(C, C_out, n_extra)`, without
            the first 2 for one matrix.
        bias: `((lmax + 1) C_out + n_extra,)`, or one for each edge, `(n_edges, ...)`.
        layout: degrees and orders.
        factors: `(n_edges, lmax + 1, C)` by degree, or `(n_edges, 1, C)`, for instance gates.
        n_extra: number of additional scalars, the last columns of `W_0`.

    Returns:
        Features by order `(n_edges, layout.n_rows, C_out)`, and scalars `(n_edges, n_extra)`, in
        the type of the weights, which autocast chooses where it is enabled.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    check_tensor("x", x, ("n_edges", layout.n_rows, "C"), (x.dtype,))
    check_factors(factors, x.shape[2], x, layout)
    bias = _spread_bias(bias, len(x))
    packed, bias = _pack_weights(weights, bias, x.shape[2], n_extra, layout)
    code = [layout.lmax, layout.mmax, 0]
    return _convolution(bias, n_extra, [x], list_ends(None, x), None, factors, packed, code)


def compute_gate_factors(y: Tensor, gates: Tensor, layout: Layout) -> Tensor:
    """Return the factors of a gate: SiLU of degree 0, sigmoids of scalars of the others.

    To be given to `so2_linear` or `from_edges` with the same `y`, which multiply as they go:
    `silu(y) = sigmoid(y) y`.

    Args:
        y: features by order `(n_edges, layout.n_rows, C)`.
        gates: scalars of degrees 1 to lmax, `(n_edges, lmax C)`; before them those of the last
            channels of degree 0, if these are to have a scalar, too.
        layout: degrees and orders.

    Returns:
        Factors `(n_edges, lmax + 1, C)`.
    """
    n_own = (layout.lmax + 1) * y.shape[2] - gates.shape[1]
    scalars = torch.cat([y[:, 0, :n_own], gates], 1)
    factors: Tensor = scalars.sigmoid().unflatten(1, (layout.lmax + 1, y.shape[2]))
    return factors


def _spread_bias(bias: Tensor, n_edges: int) -> Tensor:
    """Return the bias of each edge, numbers side by side; a view where one is for all."""
    bias = bias.contiguous()
    if bias.ndim == 1:
        return bias.expand(n_edges, -1)
    if bias.ndim != 2 or len(bias) != n_edges:
        raise ValueError(
            f"bias: expected one row, or one for each of {n_edges} edges, got {tuple(bias.shape)}"
        )
    return bias


def _pack_weights(
    weights: Sequence[Tensor], bias: Tensor, channels: int, n_extra: int, layout: Layout
) -> tuple[list[Tensor], Tensor]:
    """Check weights, and pack each pair of m > 0 for the products.

    That is one matrix `[[W_r, W_i], [-W_i, W_r]]`, or on a CPU three, see `pairs`; of narrow types
    and on GPUs one product of four times the size is as good as three small ones.
    """
    n_main = bias.shape[1] - n_extra
    shapes = layout.list_weight_shapes(channels, n_main // layout.count_degrees(0), n_extra)
    actual = [tuple(W.shape) for W in weights]
    fits = len(actual) == len(shapes) and all(
        one in (shape, shape[-2:]) for one, shape in zip(actual, shapes, strict=True)
    )
    if not fits or n_main < 0:
        raise ValueError(
            f"weights: expected shapes {shapes} for {channels} channels and a bias of "
            f"({bias.shape[1]},), got {actual}"
        )
    kind = bias.device.type
    if not torch.is_autocast_enabled(kind):
        pack = pack_pair if kind == "cpu" and bias.dtype in REAL else _join_pair
        return [W if W.ndim == 2 else pack(*W.unbind(0)) for W in weights], bias
    dtype = torch.get_autocast_dtype(kind)
    packed = [W if W.ndim == 2 else _join_pair(*W.unbind(0)) for W in weights]
    return [W.to(dtype) for W in packed], bias.to(dtype)


def _join_pair(real: Tensor, imaginary: Tensor) -> Tensor:
    upper, lower = torch.cat([real, imaginary], 1), torch.cat([-imaginary, real], 1)
    return torch.cat([upper, lower])


# Tables, edges, frames, factors, weights, and the numbers of the layout.
Arguments = tuple[
    Sequence[Tensor],
    Sequence[Tensor],
    Tensor | None,
    Tensor | None,
    Sequence[Tensor],
    Sequence[int],
]


def _shape_convolution(bias: Tensor, n_extra: int, *arguments: *Arguments) -> tuple[Tensor, Tensor]:
    tables, _, frames, _, _, code = arguments
    layout = Layout(*code[:2])
    n_edges = tables[0].shape[0] if frames is None else frames.shape[0]
    channels = (bias.shape[1] - n_extra) // layout.count_degrees(0)
    y = bias.new_empty(n_edges, layout.n_rows, channels)
    return y, bias.new_empty(n_edges, n_extra)


@define_operator("so2_convolution", fake=_shape_convolution)
def _convolution(bias: Tensor, n_extra: int, *arguments: *Arguments) -> tuple[Tensor, Tensor]:
    source, weights = _make_source(bias.dtype, *arguments)
    return products.forward(source, weights, bias.detach(), n_extra)


def _shape_gradient(
    grads: Sequence[Tensor], wanted: Sequence[bool], *arguments: *Arguments
) -> list[Tensor]:
    tables, _, _, factors, weights, _ = arguments
    own = [*tables, tables[0] if factors is None else factors]
    wants = [*wanted[:-1], *(wanted[-1] for _ in weights)]
    return [
        x.new_empty(x.shape if want else (0,) * x.ndim)
        for x, want in zip([*own, *weights], wants, strict=True)
    ]


@define_operator("so2_convolution_gradient", fake=_shape_gradient)
def _gradient(
    grads: Sequence[Tensor], wanted: Sequence[bool], *arguments: *Arguments
) -> list[Tensor]:
    """Differentiate by each table, the factors and each weight; unwanted results are empty.

    Args:
        grads: by the features, and by all scalars about the edge, `(n_edges, columns of W_0)`.
        wanted: by which tables, by the factors, by the weights.
        *arguments: of the convolution.
    """
    tables, _, _, factors, weights, _ = arguments
    source, plain = _make_source(weights[0].dtype, *arguments)
    g, g_scalars = (x.detach().contiguous() for x in grads)
    own = [*tables, tables[0] if factors is None else factors]
    # C writes what each edge has of its own, and adds to rows that several take.
    written = [passes.is_native(source) and ends.index is None for ends in source.ends]
    written.append(passes.is_native(source))
    by_own = [
        (x.new_empty if is_written else x.new_zeros)(x.shape if want else (0,) * x.ndim)
        for x, want, is_written in zip(own, wanted[:-1], written, strict=True)
    ]
    n_groups = passes.count_groups(source, plain)
    # Those of weights of a narrow type are sums in float32.
    by_weights = [
        W.new_zeros((n_groups, *W.shape), dtype=torch.promote_types(W.dtype, torch.float32))
        for W in (plain if wanted[-1] else ())
    ]
    products.backward(source, plain, g, g_scalars, (by_own[:-1], by_own[-1], by_weights))
    totals = [x[0] if n_groups == 1 else x.sum(0) for x in by_weights]
    sums = [x.to(W.dtype) for x, W in zip(totals, weights, strict=False)]
    return [*by_own, *(sums or [W.new_empty((0,) * W.ndim) for W in weights])]


def _make_source(dtype: torch.dtype, *arguments: *Arguments) -> tuple[Source, list[Tensor]]:
    """Return the operands of the products, and the weights, without gradients."""
    tables, edges, frames, factors, weights, code = arguments
    tables, layout = [table.detach().contiguous() for table in tables], Layout(*code[:2])
    n_edges = len(tables[0] if frames is None else frames)
    ends = [Ends.of(edges[3 * t : 3 * t + 3], n_edges) for t in range(len(tables))]
    frames, factors = (None if x is None else x.detach().contiguous() for x in (frames, factors))
    kernels = choose_kernels(tables[0], layout)
    source = Source(kernels, tables, ends, frames, factors, layout, dtype, code[2:])
    return source, [W.detach().contiguous() for W in weights]


def _backward(ctx: Any, saved: Sequence[Any], g: Tensor, g_extra: Tensor) -> tuple[Any, ...]:
    _, _, *arguments = saved
    tables, edges, _, factors, _, code = arguments
    n = len(tables)
    by_bias, _, by_tables, _, _, by_factors, by_weights, _ = ctx.needs_input_grad
    wanted = [*by_tables, by_factors and factors is not None, any(by_weights)]
    scalars = g[:, : Layout(*code[:2]).count_degrees(0)].flatten(1)
    by_scalars = torch.cat([scalars, g_extra], 1)
    results = _gradient([g, by_scalars], wanted, *arguments)
    grads = [x if want else None for x, want in zip(results[: n + 1], wanted, strict=False)]
    bias = by_scalars if by_bias else None
    W = [x if want else None for x, want in zip(results[n + 1 :], by_weights, strict=True)]
    return bias, None, grads[:n], [None] * len(edges), None, grads[n], W


define_derivative(_convolution, _backward, drop=[0])
