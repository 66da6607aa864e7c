"""The tensor product as operators of torch: checks, shapes, devices, derivatives.

The sum `S(g, h, Y, w) = sum g * product(h, Y, w)` is linear in each argument. So each derivative of
it, of any order, is one of these two operators with some arguments replaced.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.checks import check_tensor
from pipeline_kernels.equivariant.tensor_product import cpu, reference
from pipeline_kernels.equivariant.tensor_product.plan import ProductPlan
from pipeline_kernels.message.segments import Segments
from pipeline_kernels.operators import define_derivative, define_operator

CUDA = "pipeline_kernels.equivariant.tensor_product.cuda"


def tensor_product(
    h: Tensor, Y: Tensor, w: Tensor, senders: Segments, receivers: Segments, plan: ProductPlan
) -> Tensor:
    """Multiply features of neighbours with harmonics of the edges and sum over the edges.

    Differentiable any number of times by h, Y and w. Sums have a fixed order, so that results are
    reproducible to the last bit on one device, whatever the number of threads.

    | symbol | argument                            |
    |--------|-------------------------------------|
    | `h`    | `h`, channels last                  |
    | `Y`    | `Y`                                 |
    | `w`    | `w`                                 |
    | `s(e)` | `senders.index`                     |
    | `r(e)` | `receivers.index`                   |
    | `C_p`  | `plan.paths[p].coefficients()`      |

    Args:
        h: features, `(n_senders, plan.dim_in, C)`, float32 or float64.
        Y: harmonics of each edge as e3nn orders them, `(n_edges, plan.dim_sh)`.
        w: weight of each path and channel, `(n_edges, plan.n_paths, C)`.
        senders: which row of `h` each edge takes.
        receivers: to which row of the result each edge contributes; memory is read in order where
            edges are sorted by it.
        plan: representations and paths.

    Returns:
        Sums `(receivers.n_segments, plan.dim_out, C)`, zero where no edge arrives.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    _check(h, Y, w, senders, receivers, plan)
    edges = [x for ends in (senders, receivers) for x in (ends.index, ends.order, ends.offsets)]
    return _product(h, Y, w, edges, plan.encode())


def _check(
    h: Tensor, Y: Tensor, w: Tensor, senders: Segments, receivers: Segments, plan: ProductPlan
) -> None:
    n_edges = senders.n_elements
    check_tensor("h", h, (senders.n_segments, plan.dim_in, "C"))
    check_tensor("Y", Y, (n_edges, plan.dim_sh), (h.dtype,), h.device)
    check_tensor("w", w, (n_edges, plan.n_paths, h.shape[2]), (h.dtype,), h.device)
    senders.check("senders", n_edges, h.device)
    receivers.check("receivers", n_edges, h.device)


def _shape_product(
    h: Tensor, Y: Tensor, w: Tensor, edges: Sequence[Tensor], code: Sequence[int]
) -> Tensor:
    return h.new_empty(edges[5].shape[0] - 1, ProductPlan.decode(code).dim_out, h.shape[2])


@define_operator("tensor_product", cpu=cpu.product, cuda=f"{CUDA}:product", fake=_shape_product)
def _product(
    h: Tensor, Y: Tensor, w: Tensor, edges: Sequence[Tensor], code: Sequence[int]
) -> Tensor:
    ends, n_nodes = (edges[0], edges[3]), edges[5].shape[0] - 1
    return reference.product(h, Y, w, ends, n_nodes, ProductPlan.decode(code))


def _shape_gradient(
    operands: Sequence[Tensor],
    edges: Sequence[Tensor],
    code: Sequence[int],
    wanted: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    pairs = zip(operands[1:], wanted, strict=True)
    by_h, by_Y, by_w = (x.new_empty(x.shape if want else (0,) * x.ndim) for x, want in pairs)
    return by_h, by_Y, by_w


@define_operator(
    "tensor_product_gradient", cpu=cpu.gradient, cuda=f"{CUDA}:gradient", fake=_shape_gradient
)
def _gradient(
    operands: Sequence[Tensor],
    edges: Sequence[Tensor],
    code: Sequence[int],
    wanted: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Differentiate `S(*operands)` by h, Y and w; unwanted results are empty."""
    (g, h, Y, w), ends = operands, (edges[0], edges[3])
    by_h, by_Y, by_w = reference.gradient(g, h, Y, w, ends, ProductPlan.decode(code))
    pairs = zip((by_h, by_Y, by_w), wanted, strict=True)
    by_h, by_Y, by_w = (x if want else x.new_empty((0,) * x.ndim) for x, want in pairs)
    return by_h, by_Y, by_w


def _product_backward(ctx: Any, saved: Sequence[Any], g: Tensor) -> tuple[Tensor | None, ...]:
    h, Y, w, edges, code = saved
    wanted = list(ctx.needs_input_grad[:3])
    grads = _gradient([g, h, Y, w], edges, code, wanted)
    return tuple(x if want else None for x, want in zip(grads, wanted, strict=True))


def _gradient_backward(
    ctx: Any, saved: Sequence[Any], *directions: Tensor | None
) -> tuple[list[Tensor | None]]:
    """Differentiate the first derivatives.

    Gradients of S by h, Y and w enter further results by the change of S along the `directions` of
    these three: S with h replaced, plus S with Y replaced, plus S with w replaced.
    """
    operands, edges, code, all_wanted = saved
    moving = [d if want else None for d, want in zip(directions, all_wanted, strict=True)]
    return (
        differentiate_form(
            operands,
            moving,
            ctx.needs_input_grad[0],
            lambda h, Y, w: _product(h, Y, w, edges, code),
            lambda replaced, wanted: _gradient(replaced, edges, code, wanted),
        ),
    )


def differentiate_form(
    operands: Sequence[Tensor],
    moving: Sequence[Tensor | None],
    needed: Sequence[bool],
    product: Callable[..., Tensor],
    gradient: Callable[[list[Tensor], list[bool]], Sequence[Tensor]],
) -> list[Tensor | None]:
    """Return directional derivatives of the gradients of `g * product(...)`, a multilinear sum.

    Args:
        operands: g, then what is multiplied.
        moving: directions of the latter, along which they change; None for those that do not.
        needed: by which operands.
        product: of all operands but g; the derivative by g.
        gradient: derivatives by the others that are wanted.
    """
    sums: list[Tensor | None] = [None] * len(operands)
    for i, direction in enumerate(moving, 1):
        if direction is None:
            continue
        replaced = [*operands]
        replaced[i] = direction
        wanted = [need and j != i for j, need in enumerate(needed)]
        parts: list[Tensor | None] = [None] * len(operands)
        if wanted[0]:
            parts[0] = product(*replaced[1:])
        if any(wanted[1:]):
            grads = gradient(replaced, wanted[1:])
            parts[1:] = (x if want else None for x, want in zip(grads, wanted[1:], strict=True))
        sums = [_add(a, b) for a, b in zip(sums, parts, strict=True)]
    return sums


def _add(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Add in place where nothing is recorded: another array of all weights would take longer."""
    if a is None or b is None:
        return b if a is None else a
    return a + b if torch.is_grad_enabled() else a.add_(b)


define_derivative(_product, _product_backward)
define_derivative(_gradient, _gradient_backward, materialize=False)
