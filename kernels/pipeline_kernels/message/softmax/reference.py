"""Attention over segments in plain PyTorch, the oracle of the fast implementations."""

import torch
from torch import Tensor


def softmax(logits: Tensor, index: Tensor, n_segments: int) -> Tensor:
    """Return `a`, `(n_elements, n_heads)`."""
    rows = index[:, None].expand_as(logits)
    largest = logits.new_full((n_segments, logits.shape[1]), -torch.inf)
    largest = largest.scatter_reduce(0, rows, logits.detach(), "amax")
    exponentials = (logits - largest[index]).exp()
    totals = torch.zeros_like(largest).index_add(0, index, exponentials)
    return exponentials / totals[index]


def weighted_sum(weights: Tensor, values: Tensor, index: Tensor, n_segments: int) -> Tensor:
    """Return `out`, `(n_segments, n_rows, n_heads * C)`."""
    n, rows, width = values.shape
    heads = weights.shape[1]
    terms = values.view(n, rows, heads, width // max(1, heads)) * weights[:, None, :, None]
    return values.new_zeros(n_segments, rows, width).index_add(0, index, terms.view_as(values))


def gradient(g: Tensor, weights: Tensor, values: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Return the derivatives of `sum g * out` by logits and by values."""
    picked, heads = g[index], weights.shape[1]
    channels = values.shape[2] // max(1, heads)
    by_values = picked * weights.repeat_interleave(channels, 1)[:, None]
    change = (picked * values).sum(1).unflatten(1, (heads, -1)).sum(2)
    totals = g.new_zeros(len(g), heads).index_add(0, index, weights * change)
    return weights * (change - totals[index]), by_values
