"""Layers of staples on the CPU: C, with samples as lanes of vectors."""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline_kernels import native
from pipeline_kernels.su3 import lanes
from pipeline_kernels.threads import choose_threads


def staple_layer(
    S: Tensor, coefficients: Tensor, forward: Tensor, backward: Tensor, mask: Tensor
) -> Tensor:
    """Implement `reference.staple_layer`."""
    out = S.new_empty(S.shape[0], coefficients.shape[0], *S.shape[2:])
    if S.numel() == 0 or out.numel() == 0:
        return out.zero_()
    library = lanes.load_for_samples("staples", S)
    _run(library, "staples", [S, out], coefficients, (forward, backward, mask))
    return out


def staple_gradient(
    S: Tensor, coefficients: Tensor, G: Tensor, forward: Tensor, backward: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Implement `reference.staple_gradient`."""
    by_S = S.new_empty(S.shape)
    if S.numel() == 0 or G.numel() == 0:
        return by_S.zero_(), torch.zeros_like(coefficients)
    library = lanes.load_for_samples("staples", S)
    n_blocks = lanes.count_blocks(library, len(S))
    partial = torch.zeros(n_blocks, *coefficients.shape, dtype=torch.float64)
    arrays = [S, G, by_S, partial]
    _run(library, "staples_gradient", arrays, coefficients, (forward, backward, mask))
    return by_S, partial.sum(0).to(coefficients.dtype)


def _run(
    library: ctypes.CDLL,
    name: str,
    arrays: Sequence[Tensor],
    coefficients: Tensor,
    tables: Sequence[Tensor],
) -> None:
    S = arrays[0]
    kept = [table.contiguous() for table in tables]
    kept.append(coefficients.detach().to(S.real.dtype).contiguous())
    layer = native.pack(*kept, *S.shape[:2], coefficients.shape[0], *S.shape[2:4])
    n_blocks = lanes.count_blocks(library, len(S))
    native.call_routine(
        library,
        name,
        *map(native.make_plain, arrays),
        layer,
        n_threads=min(n_blocks, choose_threads(S.numel() * coefficients.shape[0])),
        n_bytes=native.compute_size(library, "memory_size", layer, len(arrays) > 2),
    )
