"""Implementations of the costly operations of a layer: fused, or written as the formulas read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from pipeline_kernels.equivariant import contraction, linear, mixed_product, tensor_product
from pipeline_kernels.equivariant.contraction import AtomsByElement, Polynomial
from pipeline_kernels.equivariant.mixed_product import Graph
from pipeline_kernels.equivariant.tensor_product import ProductPlan
from pipeline_kernels.message import Segments
from pipeline_kernels.message.tall import multiply_tall


@dataclass(frozen=True)
class Kernels:
    """Implementations of the same functions.

    Attributes:
        tensor_product: As `pipeline_kernels.equivariant.tensor_product.tensor_product`.
        multiply_in_parts: As `multiply_in_parts` there.
        mix_weights: As `pipeline_kernels.equivariant.mixed_product.mix_weights`.
        mixed_product: As `mixed_product` there.
        contract: As `pipeline_kernels.equivariant.contraction.contract`.
        linear: As `pipeline_kernels.equivariant.linear.equivariant_linear`.
        multiply_tall: As `pipeline_kernels.message.tall.multiply_tall`.
    """

    tensor_product: Callable[..., Tensor]
    multiply_in_parts: Callable[..., Tensor]
    mix_weights: Callable[[Tensor, Tensor], Tensor]
    mixed_product: Callable[..., Tensor]
    contract: Callable[[Tensor, Tensor, Polynomial, AtomsByElement], Tensor]
    linear: Callable[..., Tensor]
    multiply_tall: Callable[[Tensor, Tensor], Tensor]


def _compute_plain_product(
    h: Tensor, Y: Tensor, w: Tensor, senders: Segments, receivers: Segments, plan: ProductPlan
) -> Tensor:
    ends = senders.index, receivers.index
    return tensor_product.reference.product(h, Y, w, ends, receivers.n_segments, plan)


def _multiply_plain_parts(
    h: Tensor,
    Y: Tensor,
    x: Tensor,
    weigh: Callable[[Tensor], Tensor],
    senders: Segments,
    receivers: Segments,
    plan: ProductPlan,
) -> Tensor:
    weights = weigh(x).unflatten(1, (plan.n_paths, -1))
    return _compute_plain_product(h, Y, weights, senders, receivers, plan)


def _multiply_plain_mixed(
    h: Tensor,
    Y: Tensor,
    x: Tensor,
    A: Tensor,
    graph: Graph,
    plan: ProductPlan,
    weights: Tensor,
) -> Tensor:
    return mixed_product.reference.product(h, Y, x, A, graph, plan)


def _compute_plain_contraction(
    features: Tensor, coefficients: Tensor, polynomial: Polynomial, atoms: AtomsByElement
) -> Tensor:
    tables = contraction.tables.Tables.of(polynomial.make_code(features.device), polynomial.sizes)
    rows = contraction.reference.find_rows(atoms.order, atoms.chunks)
    return contraction.reference.value(features, coefficients, rows, tables)


KERNELS: Final = {
    "fused": Kernels(
        tensor_product.tensor_product,
        tensor_product.multiply_in_parts,
        mixed_product.mix_weights,
        mixed_product.mixed_product,
        contraction.contract,
        linear.equivariant_linear,
        multiply_tall,
    ),
    "reference": Kernels(
        _compute_plain_product,
        _multiply_plain_parts,
        lambda x, A: x.new_empty(0),  # the formula computes its own
        _multiply_plain_mixed,
        _compute_plain_contraction,
        linear.reference.linear,
        torch.matmul,
    ),
}
