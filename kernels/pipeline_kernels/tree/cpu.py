"""The contraction of a tree on the CPU, in C.

Samples are divided into pieces that threads take, and what the pieces of a gradient give is added
in their order, so that no result depends on the number of threads.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from pipeline_kernels.native import Argument, call_routine, compute_size, load_library, make_plain
from pipeline_kernels.threads import choose_threads
from pipeline_kernels.tree.shape import TreeShape

MAX_SEGMENTS = 64  # partial sums over the samples, of which each takes as much memory as a gradient


def contract(features: Tensor, transfers: Tensor, code: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Implement `reference.contract` for the shape of `code`."""
    shape, _ = _decode(tuple(code))
    n = features.shape[1]
    root, inner = features.new_empty(n), features.new_empty(shape.n_inner, n)
    _run("contract", code, [features, transfers], [inner, root, n])
    return root, inner


def tangent(
    features: Tensor, transfers: Tensor, inner: Tensor, direction: Tensor, code: Sequence[int]
) -> Tensor:
    """Implement `reference.tangent` along a change of the transfers."""
    root = features.new_empty(features.shape[1])
    _run("tangent", code, [features, transfers, inner, direction], [root, len(root)])
    return root


def gradient(
    features: Tensor,
    transfers: Tensor,
    inner: Tensor,
    weights: Tensor,
    code: Sequence[int],
    by_features: bool,
) -> tuple[Tensor, Tensor]:
    """Implement `reference.gradient`; without `by_features` its first result is empty."""
    n = features.shape[1]
    segment = _choose_segment(n, features.dtype)
    partial = transfers.new_empty(-(-n // segment), len(transfers))
    grads = features.new_empty(len(features) if by_features else 0, n)
    operands = [features, transfers, inner, weights]
    _run("gradient", code, operands, [grads, partial, n, segment])
    by_transfers = torch.from_numpy(partial.numpy().sum(0))
    return grads if by_features else features.new_empty(0), by_transfers


def _choose_segment(n: int, dtype: torch.dtype) -> int:
    """Return the number of samples, whole blocks of them, that one thread sums."""
    block = compute_size(load_library("tree", dtype), "block_size")
    return block * max(2, -(-n // (block * MAX_SEGMENTS)))


@cache
def _decode(code: tuple[int, ...]) -> tuple[TreeShape, np.ndarray]:
    """Return the shape and the numbers that describe it to C: `Tree` in native.c."""
    shape = TreeShape.decode(code)
    d = shape.n_leaves
    rows = [row + (slot >= d) * shape.n_features for slot, row in enumerate(shape.rows)]
    numbers = [shape.n_features, rows[-1] + 1, len(shape.nodes), shape.n_transfers]
    for i, node in enumerate(shape.nodes):
        numbers += [rows[node.left], rows[node.right], rows[d + i], *shape.tensor_shapes[i]]
        numbers += [shape.offsets[i]]
    return shape, np.array(numbers, np.int64)


def _run(
    name: str, code: Sequence[int], operands: Sequence[Tensor], others: Sequence[Argument]
) -> None:
    """Call a routine on the operands and other arguments, in as many threads as they repay."""
    library, n = load_library("tree", operands[0].dtype), operands[0].shape[1]
    if n == 0:
        return
    _, tree = _decode(tuple(code))
    plain = [make_plain(x) for x in operands]
    n_threads, n_bytes = (
        choose_threads(int(tree[1]) * n),
        compute_size(library, "memory_size", tree),
    )
    call_routine(library, name, tree, *plain, *others, n_threads=n_threads, n_bytes=n_bytes)
