"""Products along paths on the CPU: C where there is a compiler, numba elsewhere.

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
from pipeline_kernels.su3 import paths_loops as loops
from pipeline_kernels.threads import n_threads

C_TYPES = {torch.complex64: "float", torch.complex128: "double"}
MAX_KEPT = 2**26  # bytes of memory that a thread keeps from call to call
SIZES = ("batch", "n_links", "length", "n_places", "n_paths")


class Paths(ctypes.Structure):
    """What to calculate: `Paths` in paths.c."""

    _fields_ = (
        ("table", ctypes.c_void_p),
        ("adjoint", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in SIZES),
    )


def path_products(links: Tensor, table: Tensor, adjoint: Tensor) -> Tensor:
    """Implements `reference.path_products`."""
    out = links.new_empty(links.shape[0], *table.shape[1:], *links.shape[2:])
    _run("path_products", links, [out], table, adjoint)
    return out


def path_gradient(links: Tensor, G: Tensor, table: Tensor, adjoint: Tensor) -> Tensor:
    """Implements `reference.path_gradient`."""
    by_links = links.new_empty(links.shape)
    _run("path_gradient", links, [G, by_links], table, adjoint)
    return by_links


@cache
def _library(n_colours: int, dtype: torch.dtype) -> ctypes.CDLL | None:
    source = Path(__file__).with_name("paths.c").read_text()
    library = native.load("su3_paths", source, N=str(n_colours), REAL=C_TYPES[dtype])
    if library is not None:
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        library.n_lanes.restype = library.memory_size.restype = integer
        library.memory_size.argtypes = [pointer, integer]
        for name, count in {"path_products": 5, "path_gradient": 6}.items():
            function = getattr(library, name)
            function.argtypes, function.restype = [pointer] * count, None
    return library


def _run(
    name: str, links: Tensor, others: Sequence[Tensor], table: Tensor, adjoint: Tensor
) -> None:
    """Calls a routine in as many threads as there are blocks of samples for."""
    arrays = [
        array.detach().resolve_conj().resolve_neg().contiguous() for array in (links, *others)
    ]
    if links.numel() == 0:
        return
    table, adjoint = table.contiguous(), adjoint.contiguous()
    if table.numel() and not 0 <= int(table.min()) <= int(table.max()) < links.shape[1]:
        raise ValueError(f"table: expected numbers of {links.shape[1]} links, got others")
    threads = n_threads(len(links) * table.numel() * links.shape[-1] ** 2)
    library = _library(links.shape[-1], links.dtype)
    if library is None:
        getattr(loops, name)(arrays, table, adjoint, threads)
        return
    sizes = len(links), links.shape[1], *table.shape
    paths, counter = Paths(table.data_ptr(), adjoint.data_ptr(), *sizes), ctypes.c_int64(0)
    n_bytes = library.memory_size(ctypes.byref(paths), len(others) > 1)
    routine = getattr(library, name)

    def work() -> None:
        own = np.empty(n_bytes, np.uint8) if n_bytes > MAX_KEPT else None
        address = native.memory(n_bytes) if own is None else own.ctypes.data
        pointers = (array.data_ptr() for array in arrays)
        routine(*pointers, ctypes.addressof(paths), ctypes.addressof(counter), address)

    native.parallel(work, min(-(-len(links) // library.n_lanes()), threads))
