"""Gauge-invariant observables of link configurations, in float64 or complex128."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.data.loops import (
    compute_real_trace,
    multiply_path,
    project_to_algebra,
    sum_plaquettes,
)


def average_plaquettes(links: Tensor, lattice: Lattice) -> Tensor:
    """Return the mean of Re tr P / N in each plane, (batch, planes).

    Args:
        links: (batch, D, V, N, N).
        lattice: The lattice.
    """
    return sum_plaquettes(links, lattice) / (lattice.n_colours * lattice.volume)


def plaquette(links: Tensor, lattice: Lattice) -> Tensor:
    """Return the mean of Re tr P / N over all plaquettes, (batch,)."""
    return average_plaquettes(links, lattice).mean(1)


def wilson_loop(
    links: Tensor, lattice: Lattice, sides: tuple[int, int], mu: int, nu: int
) -> Tensor:
    """Return the mean of Re tr W / N over all rectangular loops in one plane, (batch,).

    Args:
        links: (batch, D, V, N, N).
        lattice: The lattice.
        sides: Lengths along mu and nu; may wind around the lattice.
        mu: First direction.
        nu: Second direction.
    """
    assert mu != nu, "a loop needs a plane"
    start = torch.arange(lattice.volume, device=links.device)
    there = multiply_path(links, lattice, [mu] * sides[0] + [nu] * sides[1], start)
    back = multiply_path(links, lattice, [nu] * sides[1] + [mu] * sides[0], start)
    return compute_real_trace(there, back).mean(1) / lattice.n_colours


def polyakov_loop(links: Tensor, lattice: Lattice, direction: int = 0) -> Tensor:
    """Return the mean of tr / N over all straight loops around one direction, (batch,) complex.

    Args:
        links: (batch, D, V, N, N).
        lattice: The lattice.
        direction: Direction around which the loops wind.
    """
    start = torch.nonzero(lattice.coordinates[:, direction] == 0).flatten().to(links.device)
    loops = multiply_path(links, lattice, [direction] * lattice.extents[direction], start)
    traces = loops.diagonal(dim1=-2, dim2=-1).to(torch.complex128).mean(-1)
    return traces.mean(1)


def field_strength(links: Tensor, lattice: Lattice) -> Tensor:
    """Return F from the clover of four plaquettes, antihermitian, (batch, planes, V, N, N)."""
    start = torch.arange(lattice.volume, device=links.device)
    fields = []
    for mu, nu in lattice.planes:
        left, down = -1 - mu, -1 - nu
        leaves = ((mu, nu, left, down), (nu, left, down, mu), (left, down, mu, nu))
        clover = multiply_path(links, lattice, (down, mu, nu, left), start)
        for leaf in leaves:
            clover = clover + multiply_path(links, lattice, leaf, start)
        fields.append(project_to_algebra(clover) / 4)
    return torch.stack(fields, dim=1)


def energy_density(links: Tensor, lattice: Lattice) -> Tensor:
    """Return E = -(1/2) sum over mu, nu of tr F F, mean over sites, (batch,)."""
    fields = field_strength(links, lattice)
    # F is antihermitian, so -tr F F = tr F F^dag; each plane counts for two ordered pairs.
    return compute_real_trace(fields, fields).sum(1).mean(1)


def topological_charge(links: Tensor, lattice: Lattice) -> Tensor:
    """Return Q = -(1/32 pi^2) sum of epsilon tr F F with the clover's F, (batch,).

    Near an integer only where the links are smooth: flow them first (`integrate_gradient_flow`).

    Args:
        links: (batch, D, V, N, N).
        lattice: The lattice.

    Raises:
        ValueError: The lattice does not have four dimensions.
    """
    if lattice.dimension != 4:
        raise ValueError(
            f"the topological charge of SU(N) needs four dimensions, not {lattice.dimension}"
        )
    fields = field_strength(links, lattice)
    plane = lattice.planes.index
    pairs = (((0, 1), (2, 3), 1), ((0, 2), (1, 3), -1), ((0, 3), (1, 2), 1))
    density = sum(
        sign * compute_real_trace(fields[:, plane(a)], fields[:, plane(b)]) for a, b, sign in pairs
    )
    assert isinstance(density, Tensor)
    return density.sum(1) * (8 / (32 * math.pi**2))
