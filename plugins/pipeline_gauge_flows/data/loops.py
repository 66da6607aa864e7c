"""Products of links along paths, and traces of closed loops."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline_gauge_flows.data.lattice import Lattice, make_neighbours


def compute_real_trace(a: Tensor, b: Tensor) -> Tensor:
    """Return Re tr(a b^dag) in float64, (...,), for matrices (..., N, N)."""
    product = torch.view_as_real(a) * torch.view_as_real(b)
    return product.sum(dim=(-3, -2, -1), dtype=torch.float64)


def project_to_algebra(matrices: Tensor) -> Tensor:
    """Project matrices (..., N, N) to the algebra of SU(N)."""
    part = (matrices - matrices.mH) / 2
    trace = part.diagonal(dim1=-2, dim2=-1).mean(-1)
    return part - trace[..., None, None] * torch.eye(
        matrices.shape[-1], dtype=matrices.dtype, device=matrices.device
    )


def multiply_path(links: Tensor, lattice: Lattice, steps: Sequence[int], start: Tensor) -> Tensor:
    """Return the products of links along a path from every site.

    Args:
        links: (batch, D, V, N, N).
        lattice: The lattice.
        steps: mu for a forward step along direction mu, -1 - mu for a backward one.
        start: Start site of each path, (V,) int64.

    Returns:
        (batch, V, N, N).
    """
    forward, backward = make_neighbours(lattice, links.device)
    site, product = start, None
    for step in steps:
        if step >= 0:
            link = links[:, step, site]
            site = forward[step, site]
        else:
            site = backward[-1 - step, site]
            link = links[:, -1 - step, site].mH
        product = link if product is None else product @ link
    assert product is not None
    return product


def sum_plaquettes(links: Tensor, lattice: Lattice) -> Tensor:
    """Return the sum of Re tr P over the plaquettes of each plane, (batch, planes) float64.

    Args:
        links: (batch, D, V, N, N).
        lattice: The lattice.
    """
    forward, _ = make_neighbours(lattice, links.device)
    sums = []
    for mu, nu in lattice.planes:
        there = links[:, mu] @ links[:, nu, forward[mu]]
        back = links[:, nu] @ links[:, mu, forward[nu]]
        sums.append(compute_real_trace(there, back).sum(1))
    return torch.stack(sums, dim=1)
