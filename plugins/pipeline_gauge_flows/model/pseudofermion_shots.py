"""Ratios of determinants of links before and after a flow, from noise shots of pseudofermions.

| symbol                    | here                                                         |
|---------------------------|--------------------------------------------------------------|
| chi                       | `draw_noise`, with the density exp(-|chi|^2)                 |
| S = |M^-dagger phi|^2     | `compute_action`                                             |
| log w, |det T| = 1        | `weigh_shots`: |chi|^2 - |M'^-dagger T M^dagger chi|^2       |

The mean of w over chi is |det M'|^2 / |det M|^2, unlike the mean of log w: shots of a configuration
are averaged before any logarithm is taken.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from pipeline_gauge_flows.data.datasets import FermionOptions
from pipeline_gauge_flows.data.fermions.solver import DiracSolver
from pipeline_gauge_flows.data.lattice import Lattice, seed_generator
from pipeline_gauge_flows.model.pseudofermion_flow import Operators, PseudofermionFlow
from pipeline_kernels.dirac import DiracOperator

_TOLERANCE: Final = 1e-9
"""|r| / |b| of solutions: for hundreds of sites the error of a weight is well below its noise."""


def make_operators(
    before: Tensor,
    after: Tensor,
    lattice: Lattice,
    quarks: tuple[FermionOptions, FermionOptions],
) -> Operators:
    """Return the operators of links before and after a flow, each (batch, D, V, N, N)."""
    return Operators(
        *(
            DiracOperator(
                links.detach().to(torch.complex128), lattice.extents, one.kappa, one.two_kappa_mu
            )
            for links, one in zip((before, after), quarks, strict=True)
        )
    )


def draw_noise(lattice: Lattice, n_shots: int, seeds: Sequence[Sequence[int]]) -> Tensor:
    """Draw chi, (n, n_shots, V / 2, S, N), with a separate seed for each configuration."""
    shape = n_shots, lattice.volume // 2, lattice.dimension, lattice.n_colours
    generators = (seed_generator(*seed) for seed in seeds)
    return torch.stack(
        [torch.randn(shape, generator=one, dtype=torch.complex128) for one in generators]
    )


def weigh_shots(
    flow: PseudofermionFlow | None, chi: Tensor, operators: Operators, lattice: Lattice
) -> Tensor:
    """Return log w of each shot, (batch, shots) float64.

    Args:
        flow: T; None for 1.
        chi: (batch, shots, V / 2, S, N) complex128.
        operators: Dirac operators at the links before and after the map.
        lattice: The lattice.
    """
    with torch.no_grad():
        phi = operators.before.apply_even_odd(chi, adjoint=True)
        if flow is not None:
            phi = flow(phi, operators, lattice)
        return _square(chi) - compute_action(phi, operators.after)


def weigh_by_path(
    flow: PseudofermionFlow, chi: Tensor, operators: Operators, lattice: Lattice
) -> Tensor:
    """Return log w as `weigh_shots`, with the derivatives of a path gradient.

    The derivatives are by T phi alone, with the density of T phi as a function of it: they vanish
    for each shot if T is exact (Vaitl et al., arXiv:2207.08219).
    """
    with torch.no_grad():
        phi = operators.before.apply_even_odd(chi, adjoint=True)
        start = _invert(phi, operators.before)
    mapped = flow(phi, operators, lattice)
    end = mapped.detach()
    with torch.no_grad():
        by_action = _invert(end, operators.after)
    weights = {name: p.detach() for name, p in flow.named_parameters()}
    with torch.enable_grad():
        leaf = end.clone().requires_grad_()
        back = torch.func.functional_call(flow, weights, (leaf, operators, lattice, True))
        (by_density,) = torch.autograd.grad(back, leaf, start)
    along = 2 * _multiply(by_density - by_action, mapped)
    value = _square(chi) - _multiply(end, by_action)
    return value + along - along.detach()


def compute_action(phi: Tensor, operator: DiracOperator) -> Tensor:
    """Return S = |M^-dagger phi|^2, (batch, shots) float64."""
    return _multiply(phi, _invert(phi, operator))


def _invert(phi: Tensor, operator: DiracOperator) -> Tensor:
    """Return (M^dagger M)^-1 phi."""
    return DiracSolver(operator, _TOLERANCE).solve_normal(phi)


def _square(phi: Tensor) -> Tensor:
    return _multiply(phi, phi)


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    """Return Re a^dagger b, (batch, shots)."""
    return (torch.view_as_real(a) * torch.view_as_real(b)).flatten(2).sum(-1)
