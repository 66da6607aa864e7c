"""Links and spinors for the tests of Dirac operators, and the operator written out as a matrix."""

import itertools
import math

import torch
from torch import Tensor

from pipeline_kernels.su3 import draw_haar


def draw_links(extents, n_colours, batch=1, dtype=torch.complex128, seed=0) -> Tensor:
    """Draw links from the Haar measure, (batch, D, V, N, N)."""
    D, V = len(extents), math.prod(extents)
    generator = torch.Generator().manual_seed(seed)
    links = draw_haar(batch * D * V, n_colours, generator, torch.complex128)
    return links.reshape(batch, D, V, n_colours, n_colours).to(dtype)


def draw_spinors(
    extents, n_colours, batch=1, n_rhs=1, dtype=torch.complex128, seed=1, halved=False
) -> Tensor:
    """Draw normal spinors, (batch, n_rhs, V, S, N) or on half the sites."""
    V = math.prod(extents) // (2 if halved else 1)
    shape = batch, n_rhs, V, len(extents), n_colours
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.complex128).to(dtype)


def write_out_gammas(D) -> tuple[list[Tensor], Tensor]:
    """Return gamma_mu and gamma5 as Kronecker products of Pauli's matrices."""
    entries = [[[0, 1], [1, 0]], [[0, -1j], [1j, 0]], [[1, 0], [0, -1]]]
    s1, s2, s3 = (torch.tensor(entry, dtype=torch.complex128) for entry in entries)
    if D == 2:
        return [s1, s2], s3
    one = torch.eye(2, dtype=torch.complex128)
    # (0 -i s; i s 0) = s2 x s
    return [torch.kron(s1, one), *(torch.kron(s2, s) for s in (s1, s2, s3))], torch.kron(s3, one)


def write_out_hops(links: Tensor, extents, boundary) -> Tensor:
    """Return H of one configuration as a dense matrix, hop by hop."""
    D, V, N, _ = links.shape
    gammas, _ = write_out_gammas(D)
    one = torch.eye(D, dtype=torch.complex128)
    sites = {x: n for n, x in enumerate(itertools.product(*map(range, extents)))}
    H = torch.zeros(V, D, N, V, D, N, dtype=torch.complex128)
    for x, n in sites.items():
        for mu in range(D):
            to = tuple((x[d] + (d == mu)) % extents[d] for d in range(D))
            sign = boundary[mu] if to[mu] == 0 else 1
            U = sign * links[mu, n]
            H[n, :, :, sites[to]] += torch.einsum("st,ij->sitj", one - gammas[mu], U)
            H[sites[to], :, :, n] += torch.einsum("st,ij->sitj", one + gammas[mu], U.mH)
    return H.reshape(V * D * N, V * D * N)
