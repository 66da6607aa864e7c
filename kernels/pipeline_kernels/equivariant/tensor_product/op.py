"""The tensor product as `torch.library` operators: devices, shapes, derivatives, checks.

The sum `S(g, h, Y, w) = sum g * product(h, Y, w)` is linear in each argument. So each derivative of
it, of any order, is one of these two operators with some arguments replaced.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.equivariant.tensor_product import cpu, reference
from pipeline_kernels.equivariant.tensor_product.plan import ProductPlan
from pipeline_kernels.message.segments import Segments

DTYPES = (torch.float32, torch.float64)


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
    found: Tensor = _product(h, Y, w, edges, plan.encode())
    return found


def _check(
    h: Tensor, Y: Tensor, w: Tensor, senders: Segments, receivers: Segments, plan: ProductPlan
) -> None:
    n_edges, channels = senders.n_elements, h.shape[-1] if h.ndim else 0
    if receivers.n_elements != n_edges:
        raise ValueError(
            f"receivers: expected {n_edges} edges as senders, got {receivers.n_elements}"
        )
    shapes = {
        "h": (h, (senders.n_segments, plan.dim_in, channels)),
        "Y": (Y, (n_edges, plan.dim_sh)),
        "w": (w, (n_edges, plan.n_paths, channels)),
    }
    for name, (x, shape) in shapes.items():
        if x.shape != shape:
            raise ValueError(f"{name}: expected {shape} for the plan, got {tuple(x.shape)}")
        if x.dtype not in DTYPES or x.dtype != h.dtype:
            raise ValueError(
                f"{name}: expected one dtype of {DTYPES} for h, Y and w, got {x.dtype}"
            )
        if not x.device == senders.index.device == receivers.index.device:
            raise ValueError(
                f"{name}: expected one device for all, got {x.device}, senders on "
                f"{senders.index.device} and receivers on {receivers.index.device}"
            )


@torch.library.custom_op("pipeline_kernels::tensor_product", mutates_args=())
def _product(
    h: Tensor, Y: Tensor, w: Tensor, edges: Sequence[Tensor], code: Sequence[int]
) -> Tensor:
    ends, n_nodes = (edges[0], edges[3]), edges[5].shape[0] - 1
    return reference.product(h, Y, w, ends, n_nodes, ProductPlan.decode(code))


@_product.register_kernel("cpu")
def _product_cpu(h, Y, w, edges, code):
    return cpu.product(h, Y, w, edges, code)


@_product.register_kernel("cuda")
def _product_cuda(h, Y, w, edges, code):
    from pipeline_kernels.equivariant.tensor_product import cuda

    return cuda.product(h, Y, w, edges, code)


@_product.register_fake
def _product_shape(h, Y, w, edges, code):
    dim_out = ProductPlan.decode(code).dim_out
    return h.new_empty(edges[5].shape[0] - 1, dim_out, h.shape[2])


@torch.library.custom_op("pipeline_kernels::tensor_product_gradient", mutates_args=())
def _gradient(
    operands: Sequence[Tensor],
    edges: Sequence[Tensor],
    code: Sequence[int],
    wanted: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Differentiate `S(*operands)` by h, Y and w; what is not wanted of them comes back empty."""
    (g, h, Y, w), ends = operands, (edges[0], edges[3])
    by_h, by_Y, by_w = reference.gradient(g, h, Y, w, ends, ProductPlan.decode(code))
    found = zip((by_h, by_Y, by_w), wanted, strict=True)
    by_h, by_Y, by_w = (x if want else x.new_empty((0,) * x.ndim) for x, want in found)
    return by_h, by_Y, by_w


@_gradient.register_kernel("cpu")
def _gradient_cpu(operands, edges, code, wanted):
    return cpu.gradient(operands, edges, code, wanted)


@_gradient.register_kernel("cuda")
def _gradient_cuda(operands, edges, code, wanted):
    from pipeline_kernels.equivariant.tensor_product import cuda

    return cuda.gradient(operands, edges, code, wanted)


@_gradient.register_fake
def _gradient_shape(operands, edges, code, wanted):
    found = zip(operands[1:], wanted, strict=True)
    by_h, by_Y, by_w = (x.new_empty(x.shape if want else (0,) * x.ndim) for x, want in found)
    return by_h, by_Y, by_w


def _save_product(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    h, Y, w, edges, ctx.code = inputs
    ctx.save_for_backward(h, Y, w, *edges)


def _product_backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    h, Y, w, *edges = ctx.saved_tensors
    wanted = list(ctx.needs_input_grad[:3])
    grads = _gradient([g, h, Y, w], edges, ctx.code, wanted)
    found = (x if want else None for x, want in zip(grads, wanted, strict=True))
    return *found, [None] * len(edges), None


def _save_gradient(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    operands, edges, ctx.code, ctx.wanted = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*operands, *edges)


def _gradient_backward(ctx: Any, *directions: Tensor | None) -> tuple[Any, ...]:
    """Differentiate the first derivatives.

    Gradients of S by h, Y and w enter further results by the change of S along the `directions` of
    these three: S with h replaced, plus S with Y replaced, plus S with w replaced.
    """
    operands, edges = ctx.saved_tensors[:4], list(ctx.saved_tensors[4:])
    needed = ctx.needs_input_grad[0]
    sums: list[Tensor | None] = [None] * 4
    for i, direction in enumerate(directions, 1):
        if direction is None or not ctx.wanted[i - 1]:
            continue
        replaced = [*operands]
        replaced[i] = direction
        wanted = [need and j != i for j, need in enumerate(needed)]
        found: list[Tensor | None] = [None] * 4
        if wanted[0]:
            found[0] = _product(*replaced[1:], edges, ctx.code)
        if any(wanted[1:]):
            grads = _gradient(replaced, edges, ctx.code, wanted[1:])
            found[1:] = (x if want else None for x, want in zip(grads, wanted[1:], strict=True))
        sums = [_total(a, b) for a, b in zip(sums, found, strict=True)]
    return sums, [None] * len(edges), None, None


def _total(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Add in place: both are new, and another array of all weights would take longer to get."""
    return b if a is None else a if b is None else a.add_(b)


_product.register_autograd(_product_backward, setup_context=_save_product)
_gradient.register_autograd(_gradient_backward, setup_context=_save_gradient)
