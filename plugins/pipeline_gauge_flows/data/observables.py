"""Gauge-invariant observables of link configurations, in float64 or complex128."""

import torch
from torch import Tensor

from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.data.loops import compute_real_trace, multiply_path, sum_plaquettes


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
