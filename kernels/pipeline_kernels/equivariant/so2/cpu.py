"""Rotation to the frames of edges and back on the CPU, and the products between, in C.

The functions fill or add to tensors that exist, for a span of edges, so that a tile of operands of
the matrix products stays in the cache. A thread writes whole rows of a result.
"""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline_kernels.equivariant.so2 import tiles
from pipeline_kernels.equivariant.so2.ends import Ends
from pipeline_kernels.equivariant.so2.layout import Layout
from pipeline_kernels.native import C_TYPES, call_routine, load_library
from pipeline_kernels.sources import write_layout
from pipeline_kernels.threads import choose_threads

POINTERS = ("index", "order", "first", "last")
NUMBERS = ("begin", "end", "y_begin", "chunk", "channels", "natural")
STRIDES = ("y_edge", "y_row", "f_edge", "f_degree")
OPERANDS = ("a", "b", "start", "out")
SIZES = ("rows", "depth", "width")
DISTANCES = ("a_row", "a_step", "b_row", "start_row", "out_row", "a_move", "b_move", "out_move")
CHUNK = 36  # rows of a product that a thread takes at once
PIECES = 16  # per thread, so that none waits long for the last
TILE_BYTES = 2**20  # of operands of a matrix product: half of a common second-level cache


class Work(ctypes.Structure):
    """What to go over: `Work` in native.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in POINTERS),
        *((name, ctypes.c_int64) for name in (*NUMBERS, *STRIDES)),
    )


class NativeProduct(ctypes.Structure):
    """One product: `Product` in products.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in OPERANDS),
        *((name, ctypes.c_int64) for name in (*SIZES, *DISTANCES, "streams")),
    )


def lift(
    y: Tensor,
    x: Tensor,
    frames: Tensor,
    factors: Tensor | None,
    ends: Ends,
    layout: Layout,
    turned: int = 0,
) -> None:
    """Write `reference.to_edges` of the span of `ends` to y."""
    _run("lift", [x, frames, factors, y], factors, y, ends, layout, turned)


def lower(
    x: Tensor,
    y: Tensor,
    frames: Tensor,
    factors: Tensor | None,
    ends: Ends,
    layout: Layout,
    turned: int = 0,
) -> None:
    """Add `reference.from_edges` of the span of `ends` to x."""
    _run("lower", [y, frames, factors, x], factors, y, ends, layout, turned)


def factor_gradient(
    by_factors: Tensor,
    y: Tensor,
    x: Tensor,
    frames: Tensor,
    ends: Ends,
    layout: Layout,
    turned: int = 0,
) -> None:
    """Write `reference.factor_gradient` of the span of `ends` to rows of all edges."""
    _run("factor_gradient", [y, frames, x, by_factors], by_factors, y, ends, layout, turned)


def add_orders(sums: Tensor, x: Tensor, layout: Layout) -> None:
    """Write `x_m + x_-m` of the orders above 0 to sums, `(n_edges, rows of m > 0, C)`."""
    assert sums.is_contiguous()
    assert x.stride(1) == x.shape[2]
    sizes = len(x), x.stride(0), x.shape[2]
    n_threads = choose_threads(2 * sums.numel())
    call_routine(
        load(layout, x.dtype), "add_orders", x.data_ptr(), sums, *sizes, n_threads=n_threads
    )


def prepare(products: Sequence[tiles.Product], n_edges: int, layout: Layout) -> tiles.Multiply:
    """Return what multiplies the edges of a span.

    One call does all products of a tile in the threads that rotate, which are then awake; those of
    a BLAS would wait beside them.
    """
    dtype = products[0].a.dtype if products else None
    if dtype not in C_TYPES or any(p.out.dtype != dtype for p in products):
        return tiles.prepare(products, n_edges)
    library = load(layout, dtype)
    natives = [
        (NativeProduct * len(some))(*(_describe(product, n_edges) for product in some))
        for some in _divide(products)
    ]
    width = sum(p.a.shape[1] for p in products)

    def multiply(span: slice) -> None:
        count = span.stop - span.start
        threads = choose_threads(count * width)
        for some in natives:
            sizes = len(some), span.start, count, CHUNK
            address = ctypes.addressof(some)
            call_routine(library, "multiply_all", address, *sizes, n_threads=threads)

    return multiply


def _divide(products: Sequence[tiles.Product]) -> list[list[tiles.Product]]:
    """Divide products into rounds, in each of which every result is another."""
    rounds: list[list[tiles.Product]] = []
    for product in products:
        for some in rounds:
            if all(other.out is not product.out for other in some):
                some.append(product)
                break
        else:
            rounds.append([product])
    return rounds


def _describe(product: tiles.Product, n_edges: int) -> NativeProduct:
    """Return addresses and distances; -1 stands for as many as a span has edges."""
    out, a, b, start = product.out, product.a, product.b, product.start
    assert out.stride(1) == b.stride(1) == 1
    assert a.stride(1) == 1
    if product.summed:
        sizes, steps, start = (a.shape[1], -1), (1, a.stride(0)), out
    else:
        sizes, steps = (-1, a.shape[1]), (a.stride(0), 1)
    start_row = 0 if start is None or start.ndim == 1 else start.stride(0)
    moves = [x.stride(0) if len(x) == n_edges else 0 for x in (a, b, out)]
    moves[2 if product.summed else 1] = 0  # no rows of edges
    operands = map(_find_address, (a, b, start, out))
    return NativeProduct(
        *operands, *sizes, out.shape[1], *steps, b.stride(0), start_row, out.stride(0), *moves
    )


def load(layout: Layout, dtype: torch.dtype) -> ctypes.CDLL:
    """Load the routines for a layout.

    Raises:
        UnavailableError: if they cannot be had.
    """
    return load_library("so2", write_layout(layout.lmax, layout.mmax), REAL=C_TYPES[dtype])


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
    strides = [0, 0] if factors is None else [factors.stride(0), factors.stride(1)]
    if factors is not None and factors.shape[1] == 1:
        strides[1] = 0
    sizes = begin, end, ends.span[0], chunk, y.shape[2], y.shape[2] - turned
    work = Work(*map(_find_address, lists), *sizes, y.stride(0), y.stride(1), *strides)
    # By address, since parts of the channels do not lie next to each other.
    addresses = map(_find_address, tensors)
    call_routine(load(layout, y.dtype), name, *addresses, work, n_threads=n_threads)


def _find_address(x: Tensor | None) -> int | None:
    return x.data_ptr() if x is not None and x.numel() else None
