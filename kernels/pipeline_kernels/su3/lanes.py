"""Routines that treat each matrix alone: C, where matrices are lanes of vectors, or else numba.

`<source>.c` stands on vectors.c and common.c; `<source>_loops.py` has functions of the same names
for numba. Both take arrays and whole numbers.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from itertools import count
from pathlib import Path

import torch
from torch import Tensor

from pipeline_kernels import native
from pipeline_kernels.threads import choose_threads

# What sources stand on, in this order, and what one of them does besides.
PARTS = ("vectors", "common")
FURTHER_PARTS = {"spectral": ("angles", "splines")}
C_TYPES = {torch.complex64: "float", torch.complex128: "double"}
PIECE = 256  # matrices that a thread takes at once where numba calculates


def run(source: str, routine: str, arrays: Sequence[Tensor], *numbers: int) -> None:
    """Calls a routine for all matrices, in as many threads as they repay.

    Args:
        source: name of the file.
        routine: name of the function; its last arrays are results, which it fills.
        arrays: `(n, ...)`, the first complex and `(n, N, N)`; results contiguous.
        numbers: further arguments.
    """
    n, n_colours = arrays[0].shape[:2]
    if n == 0:
        return
    arrays = [array.detach().resolve_conj().resolve_neg().contiguous() for array in arrays]
    threads = choose_threads(2 * sum(array.numel() for array in arrays))
    library = _library(source, n_colours, arrays[0].dtype)
    if library is None:
        _run_loops(source, routine, arrays, numbers, threads)
        return
    counter = ctypes.c_int64(0)
    pointers = [ctypes.c_void_p(array.data_ptr()) for array in arrays]
    sizes = [ctypes.c_int64(number) for number in (*numbers, n)]
    function = getattr(library, routine)
    native.parallel(lambda: function(*pointers, *sizes, ctypes.byref(counter)), threads)


def _run_loops(
    source: str, routine: str, arrays: Sequence[Tensor], numbers: tuple[int, ...], threads: int
) -> None:
    body = getattr(import_module(f"pipeline_kernels.su3.{source}_loops"), routine)
    views, n, pieces = [array.numpy() for array in arrays], len(arrays[0]), count()

    def work() -> None:
        while (begin := next(pieces) * PIECE) < n:
            body(*(view[begin : begin + PIECE] for view in views), *numbers)

    native.parallel(work, threads)


@cache
def _library(source: str, n_colours: int, dtype: torch.dtype) -> ctypes.CDLL | None:
    folder = Path(__file__).parent
    names = *PARTS, *FURTHER_PARTS.get(source, ()), source
    text = "".join((folder / f"{name}.c").read_text() for name in names)
    return native.load(f"su3_{source}", text, N=str(n_colours), REAL=C_TYPES[dtype])
