"""Routines in C that treat samples as lanes of vectors: all that paths and staples share.

`<source>.c` stands on fields.c. It takes as many samples at once as fit into a vector: batches
smaller than that repay little.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from pipeline_kernels import native
from pipeline_kernels.su3.lanes import C_TYPES

MAX_KEPT: Final = 2**26  # bytes of memory that a thread keeps from call to call


def load(
    source: str, routines: dict[str, int], n_colours: int, dtype: torch.dtype
) -> ctypes.CDLL | None:
    """Compile a source, or return None where there is no compiler.

    Args:
        source: name of the file.
        routines: number of arguments of each, all of them pointers.
        n_colours: 2 or 3.
        dtype: of the matrices.
    """
    text = "".join(Path(__file__).with_name(f"{name}.c").read_text() for name in ("fields", source))
    library = native.load(f"su3_{source}", text, N=str(n_colours), REAL=C_TYPES[dtype])
    if library is not None:
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        library.n_lanes.restype = library.memory_size.restype = integer
        library.memory_size.argtypes = [pointer, integer]
        for name, count in routines.items():
            function = getattr(library, name)
            function.argtypes, function.restype = [pointer] * count, None
    return library


def plain(arrays: Sequence[Tensor]) -> list[Tensor]:
    """Return arrays as C reads them."""
    return [array.detach().resolve_conj().resolve_neg().contiguous() for array in arrays]


def run(
    library: ctypes.CDLL,
    routine: str,
    arrays: Sequence[Tensor],
    what: ctypes.Structure,
    n_threads: int,
    *,
    is_gradient: bool,
) -> None:
    """Call a routine in as many threads as there are blocks of samples for.

    Args:
        library: from `load`.
        routine: its name.
        arrays: from `plain`, samples first; results are among them, which it fills.
        what: what to calculate.
        n_threads: at most.
        is_gradient: whether it takes the memory of a gradient.
    """
    counter = ctypes.c_int64(0)
    n_bytes = library.memory_size(ctypes.byref(what), is_gradient)
    function = getattr(library, routine)

    def work() -> None:
        own = np.empty(n_bytes, np.uint8) if n_bytes > MAX_KEPT else None
        address = native.memory(n_bytes) if own is None else own.ctypes.data
        pointers = (array.data_ptr() for array in arrays)
        function(*pointers, ctypes.addressof(what), ctypes.addressof(counter), address)

    native.parallel(work, min(-(-len(arrays[0]) // library.n_lanes()), n_threads))
