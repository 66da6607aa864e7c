"""The density by its definition, for some pairs of edges at a time."""

import torch
from torch import Tensor

from pipeline_kernels.equivariant.density.basis import SOFTENING, DensityBasis
from pipeline_kernels.equivariant.harmonics import solid_harmonics
from pipeline_kernels.message import Segments

PAIRS = 1 << 18  # pairs of edges of one receiver that are looked at together


def bond_density(
    vectors: Tensor, kinds: Tensor, receivers: Segments, basis: DensityBasis, dtype: torch.dtype
) -> Tensor:
    """Implement `op.bond_density` in PyTorch."""
    order, counts = receivers.order, receivers.offsets.diff()
    if not len(order):
        order = torch.arange(len(vectors), device=vectors.device)
    others = counts[receivers.index]
    density = vectors.new_zeros(len(vectors), *basis.shape, dtype=dtype)
    chunk = max(1, PAIRS // max(1, int(others.max()))) if len(others) else 1
    for part in torch.arange(len(vectors), device=vectors.device).split(chunk):
        many = others[part]
        edge = torch.repeat_interleave(many)
        within = torch.arange(len(edge), device=edge.device) - (many.cumsum(0) - many)[edge]
        other = order[receivers.offsets[receivers.index[part]][edge] + within]
        places = vectors[other] - 0.5 * vectors[part][edge]
        is_near = torch.linalg.vector_norm(places, dim=1) < basis.cutoff
        near = (is_near & (other != part[edge])).nonzero().flatten()
        sums = _project(places[near], kinds[other[near]], edge[near], len(part), basis)
        density[part] = sums.to(dtype)
    return density


def _project(
    places: Tensor, kinds: Tensor, edge: Tensor, n_edges: int, basis: DensityBasis
) -> Tensor:
    """Sum over atoms at places seen from the middle of an edge, (n_edges, *basis.shape)."""
    distances = torch.linalg.vector_norm(places, dim=1)
    directions = places / (distances.square() + SOFTENING**2).sqrt()[:, None]
    harmonics, radial = solid_harmonics(directions, basis.lmax), basis.evaluate_radial(distances)
    n_harmonics, n_kinds = basis.shape[0], basis.n_kinds
    sums = places.new_zeros(n_edges * n_kinds, n_harmonics, basis.n_functions)
    for n in range(basis.n_functions):  # all at once would take most of the memory
        values = harmonics * radial[:, n : n + 1]
        sums[:, :, n].index_add_(0, edge * n_kinds + kinds, values)
    by_kind: Tensor = sums.unflatten(0, (n_edges, n_kinds))
    return by_kind.transpose(1, 2).flatten(2)
