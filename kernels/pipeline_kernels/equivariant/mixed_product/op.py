"""The tensor product with mixed weights as operators of torch: checks, shapes, derivatives.

The sum `S(g, h, Y, x, A) = sum g * product(h, Y, x A)` is linear in each argument. So each
derivative of it, of any order, is one of two operators with some arguments replaced; another one
does in a pass what training on forces takes most time for.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.checks import check_tensor
from pipeline_kernels.equivariant.mixed_product import cpu, reference
from pipeline_kernels.equivariant.mixed_product.cpu import Where
from pipeline_kernels.equivariant.mixed_product.graph import Graph
from pipeline_kernels.equivariant.tensor_product import ProductPlan, tensor_product
from pipeline_kernels.equivariant.tensor_product.op import differentiate_form
from pipeline_kernels.operators import define_derivative, define_operator


def mix_weights(x: Tensor, A: Tensor) -> Tensor:
    """Make the weights that `mixed_product` keeps, before its features are there.

    Args:
        x: as there.
        A: as there.

    Returns:
        `x A`, without a derivative.
    """
    with torch.no_grad():
        return _mix(x, A)


def mixed_product(
    h: Tensor,
    Y: Tensor,
    x: Tensor,
    A: Tensor,
    graph: Graph,
    plan: ProductPlan,
    weights: Tensor | None = None,
) -> Tensor:
    """Multiply and sum as `tensor_product` does, with rows of `x A` as weights.

    Differentiable any number of times. Sums have a fixed order, so that results are reproducible to
    the last bit on one device, whatever the number of threads.

    | symbol | argument           |
    |--------|--------------------|
    | `h`    | `h`, channels last |
    | `Y`    | `Y`                |
    | `x`    | `x`                |
    | `A`    | `A`                |
    | `s(e)` | `graph.senders`    |
    | `r(e)` | `graph.rows`       |

    Args:
        h: features, `(n_senders, plan.dim_in, C)`, float32 or float64.
        Y: harmonics of each edge, `(n_edges, plan.dim_sh)`.
        x: features of each row of the weights, `(n_rows, K)`.
        A: `(K, plan.n_paths * C)`.
        graph: who sends and receives along each edge, and which row of the weights it has.
        plan: representations and paths.
        weights: from `mix_weights` for the same x and A, where it has been called already.

    Returns:
        Sums `(graph.receivers.n_segments, plan.dim_out, C)`, zero where no edge arrives.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    _check(h, Y, x, A, graph, plan)
    if h.device.type != "cpu":
        w = (x @ A)[graph.rows.index].unflatten(1, (plan.n_paths, -1))
        return tensor_product(h, Y, w, graph.senders, graph.receivers, plan)
    w = mix_weights(x, A) if weights is None else weights
    if w.shape != (len(x), A.shape[1]):
        raise ValueError(
            f"weights: expected ({len(x)}, {A.shape[1]}), as mix_weights makes them of x and A, "
            f"got {tuple(w.shape)}"
        )
    return _product(h, Y, x, A, w, graph.encode(), plan.encode())


def _check(h: Tensor, Y: Tensor, x: Tensor, A: Tensor, graph: Graph, plan: ProductPlan) -> None:
    """Raise `ValueError` unless all fit together."""
    check_tensor("h", h, (graph.senders.n_segments, plan.dim_in, "C"))
    like = (h.dtype,), h.device
    check_tensor("Y", Y, (graph.senders.n_elements, plan.dim_sh), *like)
    check_tensor("x", x, (graph.rows.n_segments, "K"), *like)
    check_tensor("A", A, (x.shape[1], plan.n_paths * h.shape[2]), *like)


@define_operator(
    "mixed_product_weights",
    cpu=cpu.mix,
    fake=lambda x, A: x.new_empty(x.shape[0], A.shape[1]),
)
def _mix(x: Tensor, A: Tensor) -> Tensor:
    return x @ A


def _decode(w: Tensor, edges: Sequence[Tensor], code: Sequence[int]) -> tuple[Graph, ProductPlan]:
    return Graph.decode(edges), ProductPlan.decode(code)


def _shape_product(h: Tensor, Y: Tensor, x: Tensor, A: Tensor, *where: *Where) -> Tensor:
    graph, plan = _decode(*where)
    return h.new_empty(graph.receivers.n_segments, plan.dim_out, h.shape[2])


@define_operator("mixed_product", cpu=cpu.product, fake=_shape_product)
def _product(h: Tensor, Y: Tensor, x: Tensor, A: Tensor, *where: *Where) -> Tensor:
    """Return the sums."""
    return reference.product(h, Y, x, A, *_decode(*where))


def _shape_gradient(
    operands: Sequence[Tensor], wanted: Sequence[bool], *where: *Where
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    pairs = zip(operands[1:], wanted, strict=True)
    a, b, c, d = (t.new_empty(t.shape if want else (0,) * t.ndim) for t, want in pairs)
    return a, b, c, d


@define_operator("mixed_product_gradient", cpu=cpu.gradient, fake=_shape_gradient)
def _gradient(
    operands: Sequence[Tensor], wanted: Sequence[bool], *where: *Where
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Differentiate `S(*operands)` by h, Y, x and A; unwanted results are empty."""
    grads = reference.gradient(operands, *_decode(*where))
    pairs = zip(grads, wanted, strict=True)
    a, b, c, d = (t if want else t.new_empty((0,) * t.ndim) for t, want in pairs)
    return a, b, c, d


def _shape_tangents(
    operands: Sequence[Tensor], directions: Sequence[Tensor], *where: *Where
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g, h, _, x, A = operands
    a, b, c, d = (t.new_empty(t.shape) for t in (g, h, x, A))
    return a, b, c, d


@define_operator("mixed_product_tangents", cpu=cpu.tangents, fake=_shape_tangents)
def _tangents(
    operands: Sequence[Tensor], directions: Sequence[Tensor], *where: *Where
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return second derivatives of `S(*operands)` by g, h, x and A along directions of h, Y, x."""
    return reference.tangents(operands, directions, *_decode(*where))


def _product_backward(ctx: Any, saved: Sequence[Any], g: Tensor) -> tuple[Tensor | None, ...]:
    operands, where = saved[:4], saved[4:]
    wanted = list(ctx.needs_input_grad[:4])
    grads = _gradient([g, *operands], wanted, *where)
    return (*(x if want else None for x, want in zip(grads, wanted, strict=True)), None)


def _gradient_backward(
    ctx: Any, saved: Sequence[Any], *directions: Tensor | None
) -> tuple[list[Tensor | None]]:
    """Differentiate the first derivatives along the directions of h, Y, x and A."""
    operands, all_wanted, w, edges, code = saved
    needed = ctx.needs_input_grad[0]
    moving = [d if want else None for d, want in zip(directions, all_wanted, strict=True)]
    along_h, along_Y, along_x, along_A = moving
    is_last = not torch.is_grad_enabled() and not needed[2]  # no further derivative follows
    if is_last and along_A is None and along_Y is not None and along_x is not None:
        # Forces are learned: one kernel does all.
        still = torch.zeros_like(operands[1]) if along_h is None else along_h
        by_g, by_h, by_x, by_A = _tangents(operands, [still, along_Y, along_x], w, edges, code)
        return ([by_g, by_h, None, by_x, by_A],)
    where = w.new_empty(0), edges, code  # the weights kept belong to other operands
    grads = differentiate_form(
        operands,
        moving,
        needed,
        lambda h, Y, x, A: _product(h, Y, x, A, *where),
        lambda replaced, wanted: _gradient(replaced, wanted, *where),
    )
    return (grads,)


define_derivative(_product, _product_backward)
define_derivative(_gradient, _gradient_backward, materialize=False)
