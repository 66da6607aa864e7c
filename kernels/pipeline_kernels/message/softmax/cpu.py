"""The softmax of segments on the CPU, in C: each segment treated by one thread."""

import torch
from torch import Tensor

from pipeline_kernels.native import call_routine, load_library, make_plain
from pipeline_kernels.threads import choose_threads


def softmax(logits: Tensor, index: Tensor, order: Tensor, offsets: Tensor) -> Tensor:
    """Implement `reference.softmax`."""
    library = load_library("softmax", logits.dtype)
    logits, order, offsets = (make_plain(x) for x in (logits, order, offsets))
    weights, heads = torch.empty_like(logits), logits.shape[1]
    call_routine(
        library,
        "softmax",
        logits,
        weights,
        order,
        offsets,
        len(offsets) - 1,
        heads,
        n_threads=choose_threads(logits.numel()),
        n_bytes=2 * heads * logits.element_size(),
    )
    return weights
