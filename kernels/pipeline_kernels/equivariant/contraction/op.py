"""The contraction as `torch.library` operators: devices, shapes, derivatives, checks.

Four operators, each with the arguments `order, chunks, code, sizes` of `AtomsByElement` and
`Polynomial` at its end (`*_` where they do not matter): the value, its derivatives by features and
by coefficients, and the changes of all three along a direction of the features. With weights g of
the value, F = sum(g * value) is linear in coefficients c and in g, so that the derivatives of

    <u, dF/dx>   by x, c, g  are the three changes along u,
    <w, dF/dc>   by x, g     are dF/dx and the value, with w for c.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.equivariant.contraction import cpu, reference
from pipeline_kernels.equivariant.contraction.plan import AtomsByElement, Polynomial
from pipeline_kernels.equivariant.contraction.tables import Tables

DTYPES = (torch.float32, torch.float64)


def coefficients(weights: Tensor, polynomial: Polynomial, atoms: AtomsByElement) -> Tensor:
    """Combine couplings with weights to the coefficients of a polynomial.

    Differentiable any number of times by the weights.

    Args:
        weights: a weight for each element, coupling and channel, `(n_elements, n_weights,
            n_channels)`, ordered as in `Polynomial.blocks`.
        polynomial: what is evaluated.
        atoms: the atoms of a batch.

    Returns:
        `(n_present, n_terms, n_channels)`, for the elements that occur.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    if weights.ndim != 3 or weights.shape[1] != polynomial.n_weights:
        raise ValueError(
            f"weights: expected (n_elements, {polynomial.n_weights}, n_channels), got "
            f"{tuple(weights.shape)}"
        )
    if atoms.n_elements > len(weights):
        raise ValueError(
            f"weights: expected some for element {atoms.n_elements - 1} too, got {len(weights)}"
        )
    Q, M = polynomial.factors(weights)
    present = weights[atoms.elements]
    return Q @ (present if polynomial.independent else M @ present)


def contract(
    features: Tensor, coefficients: Tensor, polynomial: Polynomial, atoms: AtomsByElement
) -> Tensor:
    """Evaluate a polynomial of the features of each atom, channel by channel.

    Differentiable any number of times by features and coefficients.

    | symbol   | argument                                                       |
    |----------|----------------------------------------------------------------|
    | `A`      | `features`, for each atom all components of all channels       |
    | `c`      | `coefficients[e]`, e the row of the element in `atoms.elements`|
    | `t`      | the terms of `polynomial`                                      |
    | `B`      | the result                                                     |

    Args:
        features: `(n_atoms, n_inputs, n_channels)`, float32 or float64.
        coefficients: of each element that occurs, `(n_present, n_terms, n_channels)`, of the same
            type.
        polynomial: what is evaluated.
        atoms: which coefficients an atom has.

    Returns:
        `(n_atoms, n_outputs, n_channels)`.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    _check(features, coefficients, polynomial, atoms)
    code = polynomial.code(features.device)
    tail = atoms.order, atoms.chunks, code, polynomial.sizes
    found: Tensor = _value(features, coefficients, *tail)
    return found


def _check(
    features: Tensor, coefficients: Tensor, polynomial: Polynomial, atoms: AtomsByElement
) -> None:
    if features.dtype not in DTYPES or coefficients.dtype != features.dtype:
        raise ValueError(
            f"features, coefficients: expected one dtype of {DTYPES}, got {features.dtype} and "
            f"{coefficients.dtype}"
        )
    if features.ndim != 3 or features.shape[:2] != (atoms.n_atoms, polynomial.n_inputs):
        raise ValueError(
            f"features: expected ({atoms.n_atoms}, {polynomial.n_inputs}, n_channels), got "
            f"{tuple(features.shape)}"
        )
    expected = (len(atoms.elements), polynomial.n_terms, features.shape[2])
    if coefficients.shape != expected:
        raise ValueError(f"coefficients: expected {expected}, got {tuple(coefficients.shape)}")
    if not features.device == coefficients.device == atoms.order.device:
        raise ValueError(
            f"coefficients, atoms: expected device {features.device} of the features, got "
            f"{coefficients.device} and {atoms.order.device}"
        )


def _rows_and_tables(tail: Sequence[Any]) -> tuple[Tensor, Tables]:
    order, chunks, code, sizes = tail
    return reference.rows(order, chunks), Tables.of(code, sizes)


@torch.library.custom_op("pipeline_kernels::contraction_value", mutates_args=())
def _value(
    features: Tensor,
    coefficients: Tensor,
    order: Tensor,
    chunks: Tensor,
    code: Tensor,
    sizes: Sequence[int],
) -> Tensor:
    rows, tables = _rows_and_tables((order, chunks, code, sizes))
    return reference.value(features, coefficients, rows, tables)


@torch.library.custom_op("pipeline_kernels::contraction_by_features", mutates_args=())
def _by_features(
    features: Tensor,
    coefficients: Tensor,
    weights: Tensor,
    order: Tensor,
    chunks: Tensor,
    code: Tensor,
    sizes: Sequence[int],
) -> Tensor:
    rows, tables = _rows_and_tables((order, chunks, code, sizes))
    return reference.by_features(features, coefficients, weights, rows, tables)


@torch.library.custom_op("pipeline_kernels::contraction_by_coefficients", mutates_args=())
def _by_coefficients(
    features: Tensor,
    weights: Tensor,
    n_present: int,
    order: Tensor,
    chunks: Tensor,
    code: Tensor,
    sizes: Sequence[int],
) -> Tensor:
    rows, tables = _rows_and_tables((order, chunks, code, sizes))
    return reference.by_coefficients(features, weights, rows, tables, n_present)


@torch.library.custom_op("pipeline_kernels::contraction_tangents", mutates_args=())
def _tangents(
    features: Tensor,
    coefficients: Tensor,
    weights: Tensor,
    direction: Tensor,
    order: Tensor,
    chunks: Tensor,
    code: Tensor,
    sizes: Sequence[int],
) -> tuple[Tensor, Tensor, Tensor]:
    rows, tables = _rows_and_tables((order, chunks, code, sizes))
    return reference.tangents(features, coefficients, weights, direction, rows, tables)


@_value.register_kernel("cpu")
def _value_cpu(features, coefficients, *tail):
    return cpu.value(features, coefficients, cpu.Batch(*tail))


@_by_features.register_kernel("cpu")
def _by_features_cpu(features, coefficients, weights, *tail):
    return cpu.by_features(features, coefficients, weights, cpu.Batch(*tail))


@_by_coefficients.register_kernel("cpu")
def _by_coefficients_cpu(features, weights, n_present, *tail):
    return cpu.by_coefficients(features, weights, cpu.Batch(*tail), n_present)


@_tangents.register_kernel("cpu")
def _tangents_cpu(features, coefficients, weights, direction, *tail):
    return cpu.tangents(features, coefficients, weights, direction, cpu.Batch(*tail))


@_value.register_kernel("cuda")
def _value_cuda(features, coefficients, *tail):
    from pipeline_kernels.equivariant.contraction import cuda

    return cuda.value(features, coefficients, *tail)


@_by_features.register_kernel("cuda")
def _by_features_cuda(features, coefficients, weights, *tail):
    from pipeline_kernels.equivariant.contraction import cuda

    return cuda.by_features(features, coefficients, weights, *tail)


@_by_coefficients.register_kernel("cuda")
def _by_coefficients_cuda(features, weights, n_present, *tail):
    from pipeline_kernels.equivariant.contraction import cuda

    return cuda.by_coefficients(features, weights, n_present, *tail)


@_tangents.register_kernel("cuda")
def _tangents_cuda(features, coefficients, weights, direction, *tail):
    from pipeline_kernels.equivariant.contraction import cuda

    return cuda.tangents(features, coefficients, weights, direction, *tail)


@_value.register_fake
def _value_shape(features, coefficients, order, chunks, code, sizes):
    return features.new_empty(len(features), sizes[1], features.shape[2])


@_by_features.register_fake
def _by_features_shape(features, *_):
    return features.new_empty(features.shape)


@_by_coefficients.register_fake
def _by_coefficients_shape(features, weights, n_present, order, chunks, code, sizes):
    return features.new_empty(n_present, sizes[4], features.shape[2])


@_tangents.register_fake
def _tangents_shape(features, coefficients, weights, *_):
    return tuple(x.new_empty(x.shape) for x in (weights, features, coefficients))


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *_, ctx.sizes = inputs
    ctx.save_for_backward(*(x for x in inputs if isinstance(x, Tensor)))


def _saved(ctx: Any) -> tuple[Sequence[Tensor], tuple[Any, ...]]:
    *tensors, order, chunks, code = ctx.saved_tensors
    return tensors, (order, chunks, code, ctx.sizes)


_NOTHING = (None,) * 4  # for order, chunks, code, sizes


def _wanted(ctx: Any, argument: int) -> bool:
    """Return whether a gradient by an argument is asked for now.

    Unlike `ctx.needs_input_grad`, which says whether it could be: coefficients that are trained
    have a gradient, but forces do not need it.
    """
    node = ctx.next_functions[argument][0]
    if node is None:
        return False
    try:
        wanted: bool = torch._C._will_engine_execute_node(node)
    except RuntimeError:  # not known of a leaf
        return True
    return wanted


def _value_backward(ctx: Any, weights: Tensor) -> tuple[Tensor | None, ...]:
    (features, coefficients), tail = _saved(ctx)
    by_x = by_c = None
    if _wanted(ctx, 0):
        by_x = _by_features(features, coefficients, weights, *tail)
    if _wanted(ctx, 1):
        by_c = _by_coefficients(features, weights, len(coefficients), *tail)
    return by_x, by_c, *_NOTHING


def _by_features_backward(ctx: Any, direction: Tensor) -> tuple[Tensor | None, ...]:
    (features, coefficients, weights), tail = _saved(ctx)
    by_g, by_x, by_c = _tangents(features, coefficients, weights, direction, *tail)
    return by_x, by_c, by_g, *_NOTHING


def _by_coefficients_backward(ctx: Any, direction: Tensor) -> tuple[Tensor | None, ...]:
    (features, weights), tail = _saved(ctx)
    by_x = by_g = None
    if _wanted(ctx, 0):
        by_x = _by_features(features, direction, weights, *tail)
    if _wanted(ctx, 1):
        by_g = _value(features, direction, *tail)
    return by_x, by_g, None, *_NOTHING


def _tangents_backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    """Differentiate in plain PyTorch: any higher order follows from it."""
    tensors, tail = _saved(ctx)
    again, needed = torch.is_grad_enabled(), ctx.needs_input_grad[:4]
    with torch.enable_grad():
        # Views, so that a path from one argument to another outside of here does not count.
        inputs = [
            t.view_as(t) if again else t.detach().requires_grad_(need)
            for t, need in zip(tensors, needed, strict=True)
        ]
        outputs = reference.tangents(*inputs, *_rows_and_tables(tail))
        total = sum((g * out).sum() for g, out in zip(grads, outputs, strict=True))
    wanted = [t for t, need in zip(inputs, needed, strict=True) if need]
    found = iter(torch.autograd.grad(total, wanted, create_graph=again, materialize_grads=True))
    return *(next(found) if need else None for need in needed), *_NOTHING


for _operator, _backward in [
    (_value, _value_backward),
    (_by_features, _by_features_backward),
    (_by_coefficients, _by_coefficients_backward),
    (_tangents, _tangents_backward),
]:
    _operator.register_autograd(_backward, setup_context=_save)
