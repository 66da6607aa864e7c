"""The map as operators of torch: checks, shapes, derivatives."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.checks import REAL, check_tensor
from pipeline_kernels.equivariant.linear import cpu, reference
from pipeline_kernels.equivariant.linear.cpu import How
from pipeline_kernels.equivariant.linear.plan import LinearPlan
from pipeline_kernels.operators import define_derivative, define_operator


def equivariant_linear(
    x: Tensor,
    weights: Sequence[Tensor],
    plan: LinearPlan,
    factors: Sequence[float],
    offsets: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Map the channels of each degree.

    Differentiable any number of times. Sums have a fixed order, so that results are reproducible to
    the last bit on one device, whatever the number of threads.

    | symbol | argument       |
    |--------|----------------|
    | `x`    | `x`            |
    | `W_l`  | `weights[l]`   |
    | `a_l`  | `factors[l]`   |

    Args:
        x: features, `(n, plan.dim_in, C)`.
        weights: of each degree, `(n_groups, plan.counts[l] * C, D)`; of two dimensions where all
            rows have the same.
        plan: representations that come in.
        factors: of each degree.
        offsets: where in `x` each group begins, and the end, ascending, `(n_groups + 1,)` int64;
            None where all rows have the same weights.
        bias: of degree 0, `(D,)`.

    Returns:
        `(n, plan.dim_out, D)`, zero components for none.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    _check(x, weights, plan, factors, offsets, bias)
    kind = x.device.type
    if kind != "cpu" or x.dtype not in REAL or torch.is_autocast_enabled(kind):
        return reference.linear(x, weights, plan, factors, offsets, bias)
    return _linear(x, list(weights), bias, offsets, plan.encode(), list(factors), False)


def differentiate_linear(
    g: Tensor,
    weights: Sequence[Tensor],
    plan: LinearPlan,
    factors: Sequence[float],
    offsets: Tensor | None = None,
) -> Tensor:
    """Return the derivative of `sum g equivariant_linear(x)` by x.

    Args:
        g: of the results, `(n, plan.dim_out, D)`.
        weights: as they map, and so are the plan, factors and offsets.
        plan: representations that came in.
        factors: of each degree.
        offsets: of the groups.

    Returns:
        `(n, plan.dim_in, C)`, zero in components that are not used.
    """
    if g.device.type != "cpu" or g.dtype not in REAL:
        return reference.transposed(g, weights, plan, factors, offsets)
    return _linear(g, list(weights), None, offsets, plan.encode(), list(factors), True)


def _check(
    x: Tensor,
    weights: Sequence[Tensor],
    plan: LinearPlan,
    factors: Sequence[float],
    offsets: Tensor | None,
    bias: Tensor | None,
) -> None:
    """Raise `ValueError` unless all fit together."""
    like = (x.dtype,), x.device
    check_tensor("x", x, ("n", plan.dim_in, "C"), *like)
    if not len(weights) == len(factors) == len(plan.counts):
        raise ValueError(
            f"weights, factors: expected one for each of {len(plan.counts)} degrees, got "
            f"{len(weights)} and {len(factors)}"
        )
    width, groups = weights[0].shape[-1], () if offsets is None else (len(offsets) - 1,)
    for degree, (W, count) in enumerate(zip(weights, plan.counts, strict=True)):
        check_tensor(f"weights[{degree}]", W, (*groups, count * x.shape[2], width), *like)
    if bias is not None:
        check_tensor("bias", bias, (width,), *like)


def _shape_linear(x: Tensor, weights: Sequence[Tensor], bias: Tensor | None, *how: *How) -> Tensor:
    _, code, _, is_transposed = how
    plan = LinearPlan.decode(code)
    if is_transposed:
        return x.new_empty(len(x), plan.dim_in, weights[0].shape[-2] // plan.counts[0])
    return x.new_empty(len(x), plan.dim_out, weights[0].shape[-1])


@define_operator("equivariant_linear", fake=_shape_linear, cpu=cpu.linear)
def _linear(x: Tensor, weights: Sequence[Tensor], bias: Tensor | None, *how: *How) -> Tensor:
    """Map features, or differentiate by them; x is then the gradient by the results."""
    offsets, code, factors, is_transposed = how
    arguments = x, weights, LinearPlan.decode(code), factors, offsets
    return reference.transposed(*arguments) if is_transposed else reference.linear(*arguments, bias)


def _shape_weights(
    x: Tensor, g: Tensor, offsets: Tensor | None, code: Sequence[int], factors: Sequence[float]
) -> list[Tensor]:
    groups = () if offsets is None else (len(offsets) - 1,)
    counts = LinearPlan.decode(code).counts
    return [x.new_empty(*groups, count * x.shape[2], g.shape[2]) for count in counts]


@define_operator("equivariant_linear_weights", fake=_shape_weights, cpu=cpu.by_weights)
def _by_weights(
    x: Tensor, g: Tensor, offsets: Tensor | None, code: Sequence[int], factors: Sequence[float]
) -> list[Tensor]:
    """Differentiate `sum g linear(x)` by the weights of each degree."""
    return reference.by_weights(x, g, LinearPlan.decode(code), factors, offsets)


def _linear_backward(ctx: Any, saved: Sequence[Any], g: Tensor) -> tuple[Any, ...]:
    x, weights, _, offsets, code, factors, is_transposed = saved
    wants_x, wants_weights, wants_bias = ctx.needs_input_grad[:3]
    by_x = by_W = None
    if wants_x:
        by_x = _linear(g, weights, None, offsets, code, factors, not is_transposed)
    if any(wants_weights):
        features, by_results = (g, x) if is_transposed else (x, g)
        by_W = _by_weights(features, by_results, offsets, code, factors)
    return by_x, by_W, g[:, 0].sum(0) if wants_bias else None


def _weights_backward(
    ctx: Any, saved: Sequence[Any], directions: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    x, g, offsets, code, factors = saved
    by_x, by_g = ctx.needs_input_grad[:2]
    moves = list(directions)
    return (
        _linear(g, moves, None, offsets, code, factors, True) if by_x else None,
        _linear(x, moves, None, offsets, code, factors, False) if by_g else None,
    )


define_derivative(_linear, _linear_backward)
define_derivative(_by_weights, _weights_backward)
