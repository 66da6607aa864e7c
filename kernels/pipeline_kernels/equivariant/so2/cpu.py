"""Rotation to the frames of edges and back on the CPU, in C.

The functions fill or add to tensors that exist, for a span of edges. A thread writes whole rows of
a result.
"""

import ctypes

import torch
from torch import Tensor

from pipeline_kernels.equivariant.so2.ends import Ends, Rows
from pipeline_kernels.equivariant.so2.layout import Layout
from pipeline_kernels.native import call_routine, load_library, pack
from pipeline_kernels.sources import write_layout
from pipeline_kernels.threads import choose_threads

PIECES = 16  # per thread, so that none waits long for the last
TILE_BYTES = 2**18  # of operands of a matrix product: a thread holds some such tiles in its cache


def lift(y: Tensor, x: Tensor, frames: Tensor, factors: Tensor | None, *rows: *Rows) -> None:
    """Implement `reference.lift`."""
    _run("lift", [x, frames, factors, y], factors, y, *rows)


def lower(x: Tensor, y: Tensor, frames: Tensor, factors: Tensor | None, *rows: *Rows) -> None:
    """Implement `reference.lower`."""
    _run("lower", [y, frames, factors, x], factors, y, *rows)


def factor_gradient(by_factors: Tensor, y: Tensor, x: Tensor, frames: Tensor, *rows: *Rows) -> None:
    """Implement `reference.factor_gradient`."""
    _run("factor_gradient", [y, frames, x, by_factors], by_factors, y, *rows)


def load(layout: Layout, dtype: torch.dtype) -> ctypes.CDLL:
    """Load the routines for a layout.

    Raises:
        UnavailableError: if they cannot be had.
    """
    return load_library("so2", dtype, write_layout(layout.lmax, layout.mmax))


def _run(
    name: str,
    tensors: list[Tensor | None],
    factors: Tensor | None,
    y: Tensor,
    ends: Ends,
    layout: Layout,
    turned: int,
) -> None:
    """Call a routine in as many threads as its work repays."""
    by_row = name == "lower" and ends.first is not None
    begin, end = (0, len(ends.first)) if by_row and ends.first is not None else ends.span
    if y.numel() == 0 or begin == end:
        return
    n_threads = choose_threads(y.numel())
    chunk = max(1, (end - begin) // (PIECES * n_threads))
    lists = [ends.index, ends.order, *((ends.first, ends.last) if by_row else (None, None))]
    sizes = begin, end, ends.span[0], chunk, y.shape[2], y.shape[2] - turned
    strides = y.stride(0), y.stride(1), *find_strides(factors)
    work = pack(*map(find_address, lists), *sizes, *strides)  # `Work` in native.c
    # By address, since parts of the channels do not lie next to each other.
    addresses = map(find_address, tensors)
    call_routine(load(layout, y.dtype), name, *addresses, work, n_threads=n_threads)


def find_strides(factors: Tensor | None) -> tuple[int, int]:
    """Return the elements from one edge, and from one degree, to the next."""
    if factors is None:
        return 0, 0
    return factors.stride(0), factors.stride(1) if factors.shape[1] > 1 else 0


def find_address(x: Tensor | None) -> int | None:
    """Return the address of a tensor; None without a tensor or elements."""
    return x.data_ptr() if x is not None and x.numel() else None
