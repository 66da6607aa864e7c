"""The contraction as operators of torch: checks, shapes, devices, derivatives.

Four operators: the value, its derivatives by features and by coefficients, and the changes of all
three along a direction of the features. With weights g of the value, F = sum(g * value) is linear
in coefficients c and in g, so that the derivatives of

    <u, dF/dx>   by x, c, g  are the three changes along u,
    <w, dF/dc>   by x, g     are dF/dx and the value, with w for c.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor

from pipeline_kernels.checks import check_tensor
from pipeline_kernels.equivariant.contraction import cpu, reference
from pipeline_kernels.equivariant.contraction.cpu import Batch
from pipeline_kernels.equivariant.contraction.plan import AtomsByElement, Polynomial
from pipeline_kernels.equivariant.contraction.tables import Tables
from pipeline_kernels.operators import (
    define_derivative,
    define_operator,
    differentiate_reference,
)

CUDA = "pipeline_kernels.equivariant.contraction.cuda"


def combine_coefficients(weights: Tensor, polynomial: Polynomial, atoms: AtomsByElement) -> Tensor:
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
    shape = "n_elements", polynomial.n_weights, "n_channels"
    check_tensor("weights", weights, shape, (weights.dtype,))
    if atoms.n_elements > len(weights):
        raise ValueError(
            f"weights: expected some for element {atoms.n_elements - 1} too, got {len(weights)}"
        )
    Q, M = polynomial.factorize(weights)
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
    code = polynomial.make_code(features.device)
    return _value(features, coefficients, atoms.order, atoms.chunks, code, polynomial.sizes)


def differentiate_contraction(
    features: Tensor,
    coefficients: Tensor,
    weights: Tensor,
    polynomial: Polynomial,
    atoms: AtomsByElement,
) -> Tensor:
    """Return the derivative of `sum weights * contract(...)` by the features.

    For a reverse pass that is written out; autograd takes the same from `contract`.

    Args:
        features: as in `contract`.
        coefficients: as there.
        weights: of the result, `(n_atoms, n_outputs, n_channels)`.
        polynomial: as there.
        atoms: as there.

    Returns:
        `(n_atoms, n_inputs, n_channels)`.

    Raises:
        ValueError: if the arguments do not fit together.
    """
    _check(features, coefficients, polynomial, atoms)
    code = polynomial.make_code(features.device)
    batch = (atoms.order, atoms.chunks, code, polynomial.sizes)
    return _by_features(features, coefficients, weights, *batch)


def _check(
    features: Tensor, coefficients: Tensor, polynomial: Polynomial, atoms: AtomsByElement
) -> None:
    shape = atoms.n_atoms, polynomial.n_inputs, "n_channels"
    check_tensor("features", features, shape, device=atoms.order.device)
    expected = len(atoms.elements), polynomial.n_terms, features.shape[2]
    check_tensor("coefficients", coefficients, expected, (features.dtype,), features.device)


def _read_batch(
    order: Tensor, chunks: Tensor, code: Tensor, sizes: Sequence[int]
) -> tuple[Tensor, Tables]:
    return reference.find_rows(order, chunks), Tables.of(code, sizes)


@define_operator(
    "contraction_value",
    cpu=cpu.value,
    cuda=f"{CUDA}:value",
    fake=lambda x, c, order, chunks, code, sizes: x.new_empty(len(x), sizes[1], x.shape[2]),
)
def _value(features: Tensor, coefficients: Tensor, *batch: *Batch) -> Tensor:
    rows, tables = _read_batch(*batch)
    return reference.value(features, coefficients, rows, tables)


@define_operator(
    "contraction_by_features",
    cpu=cpu.by_features,
    cuda=f"{CUDA}:by_features",
    fake=lambda x, *_: x.new_empty(x.shape),
)
def _by_features(features: Tensor, coefficients: Tensor, weights: Tensor, *batch: *Batch) -> Tensor:
    rows, tables = _read_batch(*batch)
    return reference.by_features(features, coefficients, weights, rows, tables)


@define_operator(
    "contraction_by_coefficients",
    cpu=cpu.by_coefficients,
    cuda=f"{CUDA}:by_coefficients",
    fake=lambda x, g, n_present, *batch: x.new_empty(n_present, batch[3][4], x.shape[2]),
)
def _by_coefficients(features: Tensor, weights: Tensor, n_present: int, *batch: *Batch) -> Tensor:
    rows, tables = _read_batch(*batch)
    return reference.by_coefficients(features, weights, rows, tables, n_present)


@define_operator(
    "contraction_tangents",
    cpu=cpu.tangents,
    cuda=f"{CUDA}:tangents",
    fake=lambda x, c, g, *_: tuple(y.new_empty(y.shape) for y in (g, x, c)),
)
def _tangents(
    features: Tensor, coefficients: Tensor, weights: Tensor, direction: Tensor, *batch: *Batch
) -> tuple[Tensor, Tensor, Tensor]:
    rows, tables = _read_batch(*batch)
    return reference.tangents(features, coefficients, weights, direction, rows, tables)


def _value_backward(ctx: Any, saved: Sequence[Any], weights: Tensor) -> tuple[Tensor | None, ...]:
    features, coefficients, *batch = saved
    by_x = by_c = None
    if ctx.needs_input_grad[0]:
        by_x = _by_features(features, coefficients, weights, *batch)
    if ctx.needs_input_grad[1]:
        by_c = _by_coefficients(features, weights, len(coefficients), *batch)
    return by_x, by_c


def _by_features_backward(
    ctx: Any, saved: Sequence[Any], direction: Tensor
) -> tuple[Tensor | None, ...]:
    features, coefficients, weights, *batch = saved
    by_g, by_x, by_c = _tangents(features, coefficients, weights, direction, *batch)
    return by_x, by_c, by_g


def _by_coefficients_backward(
    ctx: Any, saved: Sequence[Any], direction: Tensor
) -> tuple[Tensor | None, ...]:
    features, weights, _, *batch = saved
    by_x = by_g = None
    if ctx.needs_input_grad[0]:
        by_x = _by_features(features, direction, weights, *batch)
    if ctx.needs_input_grad[1]:
        by_g = _value(features, direction, *batch)
    return by_x, by_g


def _tangents_backward(ctx: Any, saved: Sequence[Any], *grads: Tensor) -> tuple[Tensor | None, ...]:
    """Differentiate in plain PyTorch: any higher order follows from it."""
    rows, tables = _read_batch(*saved[4:])
    function = partial(reference.tangents, rows=rows, tables=tables)
    return differentiate_reference(function, saved[:4], ctx.needs_input_grad[:4], grads)


define_derivative(_value, _value_backward)
define_derivative(_by_features, _by_features_backward)
define_derivative(_by_coefficients, _by_coefficients_backward)
define_derivative(_tangents, _tangents_backward)
