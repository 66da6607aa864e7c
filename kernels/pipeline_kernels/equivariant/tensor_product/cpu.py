"""The tensor product on the CPU: C where there is a compiler, numba elsewhere.

A thread writes the result of whole nodes, so that no sum depends on the number of threads.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from pipeline_kernels import native
from pipeline_kernels.equivariant.tensor_product import loops
from pipeline_kernels.equivariant.tensor_product.plan import ProductPlan
from pipeline_kernels.threads import choose_threads

C_TYPES = {torch.float32: "float", torch.float64: "double"}
ARRAYS = {"product": 4, "gradient": 7}  # of numbers, that a routine takes
OPERANDS = {"product": 3, "gradient": 4}  # of these, those that it reads
PIECES = 16  # per thread, so that none waits long for the last

Edges = Sequence[Tensor]  # index, order and offsets of senders, then of receivers


class Graph(ctypes.Structure):
    """Edges by node: `Graph` in native.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("order", "offsets", "senders", "receivers")),
        *((name, ctypes.c_int64) for name in ("n_nodes", "chunk", "channels")),
    )


def product(h: Tensor, Y: Tensor, w: Tensor, edges: Edges, code: Sequence[int]) -> Tensor:
    """Implement `reference.product` for the plan that `code` stands for."""
    plan = _decode(tuple(code))
    n_nodes, channels = edges[5].shape[0] - 1, h.shape[2]
    lanes = _lanes(plan, h.dtype)
    h, w = _padded(h, lanes), _padded(w, lanes)
    out = h.new_empty(n_nodes, plan.dim_out, h.shape[2])
    _run("product", plan, [h, Y, w, out], edges, by_sender=False)
    return _cropped(out, channels)


def gradient(
    operands: Sequence[Tensor], edges: Edges, code: Sequence[int], wanted: Sequence[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """Implement `reference.gradient`; what is not wanted of h, Y and w comes back empty."""
    plan = _decode(tuple(code))
    g, h, Y, w = operands
    channels, lanes = h.shape[2], _lanes(plan, h.dtype)
    g, h, w = _padded(g, lanes), _padded(h, lanes), _padded(w, lanes)
    by_h, by_Y, by_w = (
        x.new_empty(x.shape if want else (0,) * x.ndim)
        for x, want in zip((h, Y, w), wanted, strict=True)
    )
    _run("gradient", plan, [g, h, Y, w, by_h, by_Y, by_w], edges, by_sender=wanted[0])
    return _cropped(by_h, channels), by_Y, _cropped(by_w, channels)


_decode = cache(ProductPlan.decode)


def _lanes(plan: ProductPlan, dtype: torch.dtype) -> int:
    library = _library(plan, dtype)
    return library.lanes() if library else 1


def _padded(x: Tensor, lanes: int) -> Tensor:
    """Return the tensor contiguous, its channels filled up with zeros to whole vectors."""
    missing = -x.shape[2] % lanes
    return (pad(x, (0, missing)) if missing else x).detach().contiguous()


def _cropped(x: Tensor, channels: int) -> Tensor:
    return x if x.shape[2] <= channels else x[..., :channels].contiguous()


def _run(
    name: str, plan: ProductPlan, tensors: list[Tensor], edges: Edges, by_sender: bool
) -> None:
    """Call a routine in as many threads as its work repays."""
    senders, receivers = edges[0].contiguous(), edges[3].contiguous()
    order, offsets = (x.contiguous() for x in (edges[1:3] if by_sender else edges[4:6]))
    tensors = [tensor.detach().contiguous() for tensor in tensors]
    n_nodes, channels = len(offsets) - 1, tensors[0].shape[2]
    results, library = tensors[OPERANDS[name] :], _library(plan, tensors[0].dtype)
    if library is None or n_nodes == 0 or channels == 0:
        for x in results:
            x.zero_()
    if n_nodes == 0 or channels == 0:
        return
    threads = choose_threads(len(senders) * plan.n_paths * channels)
    chunk = max(1, n_nodes // (PIECES * threads))
    if library is None:
        indices = (x.numpy() for x in (senders, receivers, order, offsets))
        arrays = (*(x.numpy() for x in tensors), *_terms(plan, tensors[0].dtype), *indices)
        loops.run(name, arrays, chunk, threads)
        return
    for x in results:
        library.prefer_large_pages(_address(x), x.nbytes)
    lists = map(_address, (order, offsets, senders, receivers))
    graph, counter = Graph(*lists, n_nodes, chunk, channels), ctypes.c_int64(0)
    arguments = (*map(_address, tensors), ctypes.addressof(graph), ctypes.addressof(counter))
    routine, n_bytes = getattr(library, name), library.memory_size(channels)
    native.parallel(lambda: routine(*arguments, native.memory(n_bytes)), threads)


def _address(x: Tensor) -> int | None:
    return x.data_ptr() if x.numel() else None


@cache
def _terms(plan: ProductPlan, dtype: torch.dtype) -> tuple[np.ndarray, np.ndarray]:
    places, values = plan.terms
    return places, values.astype(np.float32 if dtype == torch.float32 else np.float64)


@cache
def _library(plan: ProductPlan, dtype: torch.dtype) -> ctypes.CDLL | None:
    source = _prelude(plan) + Path(__file__).with_name("native.c").read_text()
    library = native.load("tensor_product", source, REAL=C_TYPES[dtype])
    if library is not None:
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        library.lanes.restype = library.memory_size.restype = integer
        library.memory_size.argtypes = [integer]
        library.prefer_large_pages.argtypes = [pointer, integer]
        library.prefer_large_pages.restype = None
        for name, n_arrays in ARRAYS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = [pointer] * (n_arrays + 3), None
    return library


def _prelude(plan: ProductPlan) -> str:
    """Write what native.c expects of a plan."""
    lines = ["#include <stdint.h>"]
    couple, uncouple, paths, n_sums = [], [], [], 0
    for p, path in enumerate(plan.paths):
        C = path.coefficients()
        present = C.any(1)  # (m1, m3)
        places = np.where(present, np.cumsum(present).reshape(present.shape) - 1 + n_sums, -1)
        numbers = ", ".join(map(str, places.flatten()))
        lines.append(f"static const int16_t places_{p}[] = {{{numbers}}};")
        for m1, m3 in np.argwhere(present):
            t, terms = places[m1, m3], np.flatnonzero(C[m1, :, m3])
            pairs = [(f"(REAL){float(C[m1, m2, m3])!r}", path.rows[1] + m2) for m2 in terms]
            couple.append(f"T[{t}] = " + " + ".join(f"{c} * Y[{m}]" for c, m in pairs) + ";")
            uncouple += [f"dY[{m}] += {c} * dT[{t}];" for c, m in pairs]
        (d1, _, d3), (row, _, row_out) = path.dims, path.rows
        paths.append(f"F({p}, {d1}, {d3}, {row}, {row_out})")
        n_sums += present.sum()
    sizes = {"N_PATHS": plan.n_paths, "N_SUMS": n_sums, "DIM_IN": plan.dim_in}
    sizes |= {"DIM_SH": plan.dim_sh, "DIM_OUT": plan.dim_out}
    sizes |= {f"MAX_D{i}": max(path.dims[i - 1] for path in plan.paths) for i in (1, 3)}
    lines += [f"#define {name} {size}" for name, size in sizes.items()]
    for name, parts in (("PATHS(F)", paths), ("COUPLE", couple), ("UNCOUPLE", uncouple)):
        lines.append(f"#define {name} " + " \\\n    ".join(parts))
    return "\n".join(lines) + "\n"
