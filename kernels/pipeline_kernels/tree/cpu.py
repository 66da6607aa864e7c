"""The contraction of a tree on the CPU: C where there is a compiler, numba elsewhere.

Both divide the samples in the same way into pieces that threads take, and add what the pieces of a
gradient give in their order, so that no result depends on the number of threads.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pipeline_kernels import native
from pipeline_kernels.threads import n_threads
from pipeline_kernels.tree import loops
from pipeline_kernels.tree.shape import TreeShape

C_TYPES = {torch.float32: "float", torch.float64: "double"}
MAX_SEGMENTS = 64  # partial sums over the samples, of which each takes as much memory as a gradient
POINTERS = {"contract": 5, "tangent": 6, "gradient": 7}  # arguments before `n`


def contract(features: Tensor, transfers: Tensor, code: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Implements `reference.contract` for the shape that `code` stands for."""
    shape, _ = _tree(tuple(code))
    n = features.shape[1]
    root, inner = features.new_empty(n), features.new_empty(shape.n_inner, n)
    _run("contract", code, [features, transfers, inner, root], [n])
    return root, inner


def tangent(
    features: Tensor, transfers: Tensor, inner: Tensor, direction: Tensor, code: Sequence[int]
) -> Tensor:
    """Implements `reference.tangent` along a change of the transfers."""
    root = features.new_empty(features.shape[1])
    _run("tangent", code, [features, transfers, inner, direction, root], [len(root)])
    return root


def gradient(
    features: Tensor,
    transfers: Tensor,
    inner: Tensor,
    weights: Tensor,
    code: Sequence[int],
    by_features: bool,
) -> tuple[Tensor, Tensor]:
    """Implements `reference.gradient`; without `by_features` its first result is empty."""
    n, library = features.shape[1], _library(features.dtype)
    segment = _segment(n, library.block_size() if library else loops.BLOCK)
    partial = transfers.new_empty(-(-n // segment), len(transfers))
    grads = features.new_empty(len(features) if by_features else 0, n)
    arrays = [features, transfers, inner, weights, grads, partial]
    _run("gradient", code, arrays, [n, segment])
    by_transfers = torch.from_numpy(partial.numpy().sum(0))
    return grads if by_features else features.new_empty(0), by_transfers


def _segment(n: int, block: int) -> int:
    """Returns the number of samples, whole blocks of them, that one thread sums."""
    return block * max(2, -(-n // (block * MAX_SEGMENTS)))


@cache
def _tree(code: tuple[int, ...]) -> tuple[TreeShape, np.ndarray]:
    """Returns the shape and the numbers that describe it to C: `Tree` in native.c."""
    shape = TreeShape.decoded(code)
    d = shape.n_leaves
    rows = [row + (slot >= d) * shape.n_features for slot, row in enumerate(shape.rows)]
    numbers = [shape.n_features, rows[-1] + 1, len(shape.nodes), shape.n_transfers]
    for i, node in enumerate(shape.nodes):
        numbers += [rows[node.left], rows[node.right], rows[d + i], *shape.tensor_shapes[i]]
        numbers += [shape.offsets[i]]
    return shape, np.array(numbers, np.int64)


@cache
def _library(dtype: torch.dtype) -> ctypes.CDLL | None:
    source = Path(__file__).with_name("native.c").read_text()
    library = native.load("tree", source, REAL=C_TYPES[dtype])
    if library is not None:
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        library.block_size.restype = integer
        library.memory_size.argtypes, library.memory_size.restype = [pointer], integer
        for name, n_pointers in POINTERS.items():
            function = getattr(library, name)
            sizes = [integer] * (2 if name == "gradient" else 1)
            function.argtypes = [pointer] * n_pointers + sizes + [pointer, pointer]
            function.restype = None
    return library


def _run(name: str, code: Sequence[int], tensors: list[Tensor], sizes: list[int]) -> None:
    """Calls a routine in as many threads as its work repays."""
    n, library = sizes[0], _library(tensors[0].dtype)
    if n == 0:
        return
    _, tree = _tree(tuple(code))
    tensors = [tensor.detach().contiguous() for tensor in tensors]
    threads = n_threads(int(tree[1]) * n)
    if library is None:
        arrays = tuple(tensor.numpy() for tensor in tensors)
        loops.run(name, tree, arrays, max([loops.BLOCK, *sizes[1:]]), threads)
        return
    routine: Callable[..., None] = getattr(library, name)
    counter = ctypes.c_int64(0)
    addresses = [tensor.data_ptr() or None for tensor in tensors]
    arguments = (tree.ctypes.data, *addresses, *sizes, ctypes.addressof(counter))
    n_bytes = library.memory_size(tree.ctypes.data)
    native.parallel(lambda: routine(*arguments, native.memory(n_bytes)), threads)
