"""The map and its derivatives in PyTorch."""

from collections.abc import Iterator, Sequence
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from pipeline_kernels.equivariant.linear.plan import LinearPlan

MAX_PADDING: Final = 4
MAX_PADDED: Final = 2**16
"""Padding, relative to the rows or in rows, up to which a GPU maps all groups in one product."""


def linear(
    x: Tensor,
    weights: Sequence[Tensor],
    plan: LinearPlan,
    factors: Sequence[float],
    offsets: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Calculate `op.equivariant_linear`."""
    sizes = _find_sizes(offsets)
    by_degree = [
        _multiply(part, W * factor, sizes)
        for part, W, factor in zip(_join_paths(x, plan), weights, factors, strict=True)
    ]
    if bias is not None:
        by_degree[0] = by_degree[0] + bias
    return torch.cat(by_degree, dim=1)


def transposed(
    g: Tensor,
    weights: Sequence[Tensor],
    plan: LinearPlan,
    factors: Sequence[float],
    offsets: Tensor | None = None,
) -> Tensor:
    """Return the derivative of `sum g linear(x)` by x, (n, dim_in, C)."""
    sizes = _find_sizes(offsets)
    parts = []
    for part, W, factor, count in zip(_split(g, plan), weights, factors, plan.counts, strict=True):
        by_part = _multiply(part, W.mT * factor, sizes)  # (n, 2 l + 1, count C)
        parts.append(by_part.unflatten(2, (count, -1)).transpose(1, 2).flatten(1, 2))
    used = torch.cat(parts, dim=1)
    return pad(used, (0, 0, 0, plan.dim_in - used.shape[1]))


def by_weights(
    x: Tensor, g: Tensor, plan: LinearPlan, factors: Sequence[float], offsets: Tensor | None
) -> list[Tensor]:
    """Return the derivatives of `sum g linear(x)` by the weights of each degree."""
    sizes = _find_sizes(offsets)
    result = []
    for part, of_degree, factor in zip(_join_paths(x, plan), _split(g, plan), factors, strict=True):
        pairs = [(part, of_degree)]
        if sizes is not None:
            pairs = [*zip(part.split(sizes), of_degree.split(sizes), strict=True)]
        sums = [a.flatten(0, 1).T @ b.flatten(0, 1) for a, b in pairs]
        result.append((sums[0] if sizes is None else torch.stack(sums)) * factor)
    return result


def _find_sizes(offsets: Tensor | None) -> list[int] | None:
    """Return the rows of each group; None where all have the same weights."""
    sizes: list[int] | None = None if offsets is None else offsets.diff().tolist()
    return sizes


def _split(y: Tensor, plan: LinearPlan) -> tuple[Tensor, ...]:
    """Return the output components of each degree."""
    degrees = range(len(plan.counts))
    parts: tuple[Tensor, ...] = y.split([2 * degree + 1 for degree in degrees], dim=1)
    return parts


def _join_paths(x: Tensor, plan: LinearPlan) -> Iterator[Tensor]:
    """Yield the representations of each degree side by side, (n, 2 l + 1, count C)."""
    row = 0
    for degree, count in enumerate(plan.counts):
        part = x[:, row : row + count * (2 * degree + 1)]
        row += part.shape[1]
        paths = part.unflatten(1, (count, 2 * degree + 1))
        yield paths.transpose(1, 2).flatten(2)


def _multiply(x: Tensor, weights: Tensor, sizes: Sequence[int] | None) -> Tensor:
    """Multiply rows (n, components, K), group after group, with weights (groups, K, D)."""
    if sizes is None:
        return x @ weights
    padded = x.is_cuda and len(sizes) * max(sizes, default=0) <= max(
        MAX_PADDING * len(x), MAX_PADDED
    )
    return (_multiply_padded if padded else _multiply_pieces)(x, weights, sizes)


def _multiply_pieces(x: Tensor, weights: Tensor, sizes: Sequence[int]) -> Tensor:
    pieces = zip(x.split(list(sizes)), weights.unbind(), strict=True)
    return torch.cat([piece @ W for piece, W in pieces])


def _multiply_padded(x: Tensor, weights: Tensor, sizes: Sequence[int]) -> Tensor:
    """Do the same in one product: a GPU waits for the launch of each small one."""
    longest, own = max(sizes), torch.tensor(sizes, device=x.device)
    begins = torch.arange(len(own), device=own.device) * longest - (own.cumsum(0) - own)
    rows = torch.arange(len(x), device=own.device) + begins.repeat_interleave(
        own, output_size=len(x)
    )
    room = x.new_zeros(len(own) * longest, *x.shape[1:]).index_copy(0, rows, x)
    mapped = room.view(len(own), -1, x.shape[2]) @ weights
    by_row: Tensor = mapped.view(len(room), x.shape[1], -1).index_select(0, rows)
    return by_row
