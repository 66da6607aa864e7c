"""Layers of staples on the CPU: C where there is a compiler, numba elsewhere."""

import ctypes
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from pipeline_kernels.su3 import fields
from pipeline_kernels.su3 import staples_loops as loops
from pipeline_kernels.threads import choose_threads

POINTERS = ("forward", "backward", "active", "coefficients")
SIZES = ("batch", "n_in", "n_out", "n_directions", "volume")


class Layer(ctypes.Structure):
    """What to calculate: `Layer` in staples.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in POINTERS),
        *((name, ctypes.c_int64) for name in SIZES),
    )


def staple_layer(
    S: Tensor, coefficients: Tensor, forward: Tensor, backward: Tensor, mask: Tensor
) -> Tensor:
    """Implements `reference.staple_layer`."""
    out = S.new_empty(S.shape[0], coefficients.shape[0], *S.shape[2:])
    if out.numel() == 0:
        return out
    if S.numel() == 0:
        return out.zero_()
    library = _library(S.shape[-1], S.dtype)
    if library is None:
        return loops.staple_layer(S, coefficients, forward, backward, mask)
    _run("staples", library, [S, out], (coefficients, forward, backward, mask))
    return out


def staple_gradient(
    S: Tensor, coefficients: Tensor, G: Tensor, forward: Tensor, backward: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Implements `reference.staple_gradient`."""
    by_S = S.new_empty(S.shape)
    if S.numel() == 0 or G.numel() == 0:
        return by_S.zero_(), torch.zeros_like(coefficients)
    library = _library(S.shape[-1], S.dtype)
    if library is None:
        return loops.staple_gradient(S, coefficients, G, forward, backward, mask)
    n_blocks = -(-S.shape[0] // library.n_lanes())
    partial = torch.zeros(n_blocks, *coefficients.shape, dtype=torch.float64)
    plan = (coefficients, forward, backward, mask)
    _run("staples_gradient", library, [S, G, by_S, partial], plan)
    return by_S, partial.sum(0).to(coefficients.dtype)


@cache
def _library(n_colours: int, dtype: torch.dtype) -> ctypes.CDLL | None:
    return fields.load("staples", {"staples": 5, "staples_gradient": 7}, n_colours, dtype)


def _run(
    name: str, library: ctypes.CDLL, arrays: Sequence[Tensor], plan: tuple[Tensor, ...]
) -> None:
    S = arrays[0]
    coefficients, *tables = plan
    kept = [table.contiguous() for table in tables]
    kept.append(coefficients.detach().to(S.real.dtype).contiguous())
    sizes = S.shape[0], S.shape[1], coefficients.shape[0], *S.shape[2:4]
    layer = Layer(*(table.data_ptr() for table in kept), *sizes)
    threads = choose_threads(S.numel() * coefficients.shape[0])
    fields.run(library, name, fields.plain(arrays), layer, threads, is_gradient=len(arrays) > 2)
