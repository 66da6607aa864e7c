"""Hops as operators: devices, shapes, derivatives, checks."""

from collections.abc import Sequence
from math import prod
from typing import Any

from torch import Tensor

from pipeline_kernels.checks import check_tensor
from pipeline_kernels.dirac import cpu, reference
from pipeline_kernels.dirac.geometry import ALL, How, Where, check_extents
from pipeline_kernels.operators import define_derivative, define_operator
from pipeline_kernels.su3.matrices import check_matrices

PLAIN = (1.0, 0.0, 0.0, 0.0)


def check_links(links: Tensor, extents: Sequence[int], boundary: Sequence[int]) -> None:
    """Refuse links that do not belong to the lattice.

    Raises:
        ValueError: if so.
    """
    check_extents(extents, boundary)
    check_matrices("links", links)
    shape = "batch", len(extents), prod(extents), "N", "N"
    made = f"for extents {tuple(extents)}"
    check_tensor("links", links, shape, (links.dtype,), made=made)


def _make_spinors(psi: Tensor, *_: object) -> Tensor:
    return psi.new_empty(psi.shape)


def _make_links(chi: Tensor, psi: Tensor, extents: Sequence[int], *_: object) -> Tensor:
    n = chi.shape[-1]
    return chi.new_empty(chi.shape[0], len(extents), prod(extents), n, n)


@define_operator(
    "dirac_combine_hops",
    cpu=cpu.combine_hops,
    cuda="pipeline_kernels.dirac.cuda:combine_hops",
    fake=_make_spinors,
)
def combine_hops(psi: Tensor, other: Tensor | None, links: Tensor, *how: *How) -> Tensor:
    """Operator of `reference.combine_hops`."""
    return reference.combine_hops(psi, other, links, *how)


@define_operator(
    "dirac_hop_gradient",
    cpu=cpu.hop_gradient,
    cuda="pipeline_kernels.dirac.cuda:hop_gradient",
    fake=_make_links,
)
def gather_gradient(chi: Tensor, psi: Tensor, *where: *Where) -> Tensor:
    """Operator of `reference.hop_gradient`."""
    return reference.hop_gradient(chi, psi, *where)


def _find_source(parity: int) -> int:
    """Return the parity of the spinors whose hops end at a parity."""
    return ALL if parity == ALL else 1 - parity


def _combine_backward(ctx: Any, saved: Sequence[Any], G: Tensor) -> tuple[Tensor | None, ...]:
    psi, _, links, packed, factors, extents, boundary, parity, adjoint = saved
    a, b, c, d = factors
    by_psi = by_other = by_links = None
    by_hops = reference.multiply_diagonal(G, a, -b)
    if ctx.needs_input_grad[0]:
        where = extents, boundary, _find_source(parity), not adjoint
        by_psi = combine_hops(by_hops, None, links, packed, PLAIN, *where)
    if ctx.needs_input_grad[1]:
        by_other = reference.multiply_diagonal(G, c, -d)
    if ctx.needs_input_grad[2]:
        by_links = gather_gradient(by_hops, psi, extents, boundary, parity, adjoint)
    return by_psi, by_other, by_links


def _gradient_backward(ctx: Any, saved: Sequence[Any], G: Tensor) -> tuple[Tensor | None, ...]:
    # Re(conj(G) gradient) is Re(chi^dagger H psi) with G in the place of the links.
    chi, psi, extents, boundary, parity, adjoint = saved
    by_chi = by_psi = None
    if ctx.needs_input_grad[0]:
        by_chi = combine_hops(psi, None, G, None, PLAIN, extents, boundary, parity, adjoint)
    if ctx.needs_input_grad[1]:
        where = extents, boundary, _find_source(parity), not adjoint
        by_psi = combine_hops(chi, None, G, None, PLAIN, *where)
    return by_chi, by_psi


define_derivative(combine_hops, _combine_backward)
define_derivative(gather_gradient, _gradient_backward)
