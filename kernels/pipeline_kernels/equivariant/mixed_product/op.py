"""The tensor product with mixed weights as operators of torch: checks, shapes, derivatives.

The sum `S(g, h, Y, x, A) = sum g * product(h, Y, x A)` is linear in each argument. So each derivative
of it, of any order, is one of the first two operators with some arguments replaced; the third one
does in a pass what training on forces takes most time for.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.equivariant.mixed_product import cpu, reference
from pipeline_kernels.equivariant.tensor_product import ProductPlan
from pipeline_kernels.equivariant.tensor_product.op import differentiate_form
from pipeline_kernels.message.segments import Segments
from pipeline_kernels.operators import define_derivative, define_operator

DTYPES = (torch.float32, torch.float64)


def mixed_product(
    h: Tensor,
    Y: Tensor,
    x: Tensor,
    A: Tensor,
    senders: Segments,
    receivers: Segments,
    plan: ProductPlan,
) -> Tensor:
    """Multiply and sum as `tensor_product` does, with the weights `x A`.

    Differentiable any number of times. Sums have a fixed order, so that results are reproducible to
    the last bit on one device, whatever the number of threads.

    Args:
        h: features, `(n_senders, plan.dim_in, C)`, float32 or float64.
        Y: harmonics of each edge, `(n_edges, plan.dim_sh)`.
        x: features of each edge, `(n_edges, K)`.
        A: `(K, plan.n_paths * C)`.
        senders: which row of `h` each edge takes.
        receivers: to which row of the result each edge contributes, ascending.
        plan: representations and paths.

    Returns:
        Sums `(receivers.n_segments, plan.dim_out, C)`, zero where no edge arrives.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    _check(h, Y, x, A, senders, receivers, plan)
    edges = [t for ends in (senders, receivers) for t in (ends.index, ends.order, ends.offsets)]
    return _product(h, Y, x, A, edges, plan.encode())


def _check(
    h: Tensor,
    Y: Tensor,
    x: Tensor,
    A: Tensor,
    senders: Segments,
    receivers: Segments,
    plan: ProductPlan,
) -> None:
    """Raise `ValueError` unless all fit together."""
    n_edges = senders.n_elements
    if receivers.n_elements != n_edges or receivers.order.numel():
        raise ValueError(
            f"receivers: expected {n_edges} edges as senders, sorted by receiver, got "
            f"{receivers.n_elements}{', not sorted' if receivers.order.numel() else ''}"
        )
    channels, K = h.shape[-1] if h.ndim else 0, A.shape[0] if A.ndim else 0
    shapes = {
        "h": (h, (senders.n_segments, plan.dim_in, channels)),
        "Y": (Y, (n_edges, plan.dim_sh)),
        "x": (x, (n_edges, K)),
        "A": (A, (K, plan.n_paths * channels)),
    }
    for name, (operand, shape) in shapes.items():
        if operand.shape != shape:
            raise ValueError(f"{name}: expected {shape} for the plan, got {tuple(operand.shape)}")
        if operand.dtype not in DTYPES or (operand.dtype, operand.device) != (h.dtype, h.device):
            raise ValueError(
                f"{name}: expected one dtype of {DTYPES} and one device for all, got "
                f"{operand.dtype} on {operand.device}"
            )


def _shape_product(
    h: Tensor, Y: Tensor, x: Tensor, A: Tensor, edges: Sequence[Tensor], code: Sequence[int]
) -> Tensor:
    return h.new_empty(edges[5].shape[0] - 1, ProductPlan.decode(code).dim_out, h.shape[2])


@define_operator("mixed_product", cpu=cpu.product, fake=_shape_product)
def _product(
    h: Tensor, Y: Tensor, x: Tensor, A: Tensor, edges: Sequence[Tensor], code: Sequence[int]
) -> Tensor:
    return reference.product(h, Y, x, A, edges, ProductPlan.decode(code))


def _shape_gradient(
    operands: Sequence[Tensor],
    edges: Sequence[Tensor],
    code: Sequence[int],
    wanted: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    pairs = zip(operands[1:], wanted, strict=True)
    a, b, c, d = (t.new_empty(t.shape if want else (0,) * t.ndim) for t, want in pairs)
    return a, b, c, d


@define_operator("mixed_product_gradient", cpu=cpu.gradient, fake=_shape_gradient)
def _gradient(
    operands: Sequence[Tensor],
    edges: Sequence[Tensor],
    code: Sequence[int],
    wanted: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Differentiate `S(*operands)` by h, Y, x and A; what is not wanted comes back empty."""
    grads = reference.gradient(operands, edges, ProductPlan.decode(code))
    pairs = zip(grads, wanted, strict=True)
    a, b, c, d = (t if want else t.new_empty((0,) * t.ndim) for t, want in pairs)
    return a, b, c, d


def _shape_tangents(
    operands: Sequence[Tensor],
    directions: Sequence[Tensor],
    edges: Sequence[Tensor],
    code: Sequence[int],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g, h, _, x, A = operands
    a, b, c, d = (t.new_empty(t.shape) for t in (g, h, x, A))
    return a, b, c, d


@define_operator("mixed_product_tangents", cpu=cpu.tangents, fake=_shape_tangents)
def _tangents(
    operands: Sequence[Tensor],
    directions: Sequence[Tensor],
    edges: Sequence[Tensor],
    code: Sequence[int],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return how derivatives of `S(*operands)` by g, h, x and A change along those of h, Y, x."""
    return reference.tangents(operands, directions, edges, ProductPlan.decode(code))


def _product_backward(ctx: Any, saved: Sequence[Any], g: Tensor) -> tuple[Tensor | None, ...]:
    *operands, edges, code = saved
    wanted = list(ctx.needs_input_grad[:4])
    grads = _gradient([g, *operands], edges, code, wanted)
    return tuple(x if want else None for x, want in zip(grads, wanted, strict=True))


def _gradient_backward(
    ctx: Any, saved: Sequence[Any], *directions: Tensor | None
) -> tuple[list[Tensor | None]]:
    """Differentiate the first derivatives along the directions of h, Y, x and A."""
    operands, edges, code, all_wanted = saved
    needed = ctx.needs_input_grad[0]
    moving = [d if want else None for d, want in zip(directions, all_wanted, strict=True)]
    along_h, along_Y, along_x, along_A = moving
    is_last = not torch.is_grad_enabled() and not needed[2]  # no further derivative follows
    is_of_forces = along_Y is not None and along_x is not None and along_A is None
    if is_last and is_of_forces and operands[0].device.type == "cpu":
        still = torch.zeros_like(operands[1]) if along_h is None else along_h
        by_g, by_h, by_x, by_A = _tangents(operands, [still, along_Y, along_x], edges, code)
        return ([by_g, by_h, None, by_x, by_A],)
    return (
        differentiate_form(
            operands,
            moving,
            needed,
            lambda *factors: _product(*factors, edges, code),
            lambda replaced, wanted: _gradient(replaced, edges, code, wanted),
        ),
    )


define_derivative(_product, _product_backward)
define_derivative(_gradient, _gradient_backward, materialize=False)
