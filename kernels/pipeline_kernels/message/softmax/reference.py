"""The softmax of segments in plain PyTorch, the oracle of the fast implementations."""

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
