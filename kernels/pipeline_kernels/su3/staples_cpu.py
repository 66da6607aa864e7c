"""Layers of staples on the CPU: C where there is a compiler, numba elsewhere.

C takes as many samples at once as fit into a vector: batches smaller than that repay little.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pipeline_kernels import native
from pipeline_kernels.su3 import staples_loops as loops
from pipeline_kernels.threads import n_threads

C_TYPES = {torch.complex64: "float", torch.complex128: "double"}
MAX_KEPT = 2**26  # bytes of memory that a thread keeps from call to call
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
    source = Path(__file__).with_name("staples.c").read_text()
    library = native.load("su3_staples", source, N=str(n_colours), REAL=C_TYPES[dtype])
    if library is not None:
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        library.n_lanes.restype = library.memory_size.restype = integer
        library.memory_size.argtypes = [pointer, integer]
        for name, count in {"staples": 5, "staples_gradient": 7}.items():
            function = getattr(library, name)
            function.argtypes, function.restype = [pointer] * count, None
    return library


def _run(
    name: str, library: ctypes.CDLL, arrays: Sequence[Tensor], plan: tuple[Tensor, ...]
) -> None:
    """Calls a routine in as many threads as there are blocks of samples for."""
    S = arrays[0]
    coefficients, *tables = plan
    kept = [table.contiguous() for table in tables]
    kept.append(coefficients.detach().to(S.real.dtype).contiguous())
    arrays = [array.detach().resolve_conj().resolve_neg().contiguous() for array in arrays]
    sizes = S.shape[0], S.shape[1], coefficients.shape[0], *S.shape[2:4]
    layer, counter = Layer(*(table.data_ptr() for table in kept), *sizes), ctypes.c_int64(0)
    n_bytes = library.memory_size(ctypes.byref(layer), len(arrays) > 2)
    routine = getattr(library, name)

    def work() -> None:
        own = np.empty(n_bytes, np.uint8) if n_bytes > MAX_KEPT else None
        address = native.memory(n_bytes) if own is None else own.ctypes.data
        pointers = (array.data_ptr() for array in arrays)
        routine(*pointers, ctypes.addressof(layer), ctypes.addressof(counter), address)

    n_blocks = -(-S.shape[0] // library.n_lanes())
    native.parallel(work, min(n_blocks, n_threads(S.numel() * coefficients.shape[0])))
