"""Trees on NVIDIA GPUs: Triton, one launch a pass, all nodes of a block of samples in one program.

The tree is a constant of the compiled kernel: each distinct `TreeShape` is unrolled and compiled
once. A node is a loop over the left rank i with products of matrices, padded to powers of two,

    u += u_l[i] B_t[i]^T u_r,
    dB_t[i] = (u_l[i] u_r) g^T,   h = B_t[i] g,   g_l[i] = u_r . h,   g_r += u_l[i] h,

where `.` sums over the rows and the last axis of u and g runs over samples. Results of a node are
passed through global memory, where only the program that wrote them reads them.
"""

import math
from collections.abc import Sequence
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from pipeline_kernels.tree import reference
from pipeline_kernels.tree.shape import TreeShape

BLOCK = 32  # samples that a program holds at once
MAX_RANK = 32  # the tiles of a program, `rank**2`, outgrow registers and shared memory
MAX_LEAVES = 32  # nodes are unrolled, so they take the longer to compile the more there are
MAX_GROUP = tl.constexpr(32)  # sums of programs that are added at once, in each of two levels
WIDTH = tl.constexpr(128)  # transfers for which they are added at once
MAX_PARTIAL = 2**25  # numbers in the sums of all programs


def contract(features: Tensor, transfers: Tensor, code: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Implement `reference.contract`, to which trees beyond `MAX_RANK`, `MAX_LEAVES` are left."""
    shape, n = _decode(tuple(code)), features.shape[1]
    if not _has_room(shape):
        root, inner = reference.contract(features, transfers, shape)
        return root.clone(), inner
    value, inner = features.new_empty(n), features.new_empty(shape.n_inner, n)
    if n > 0:
        with torch.cuda.device_of(features):
            _contract[(triton.cdiv(n, BLOCK),)](
                value,
                (features.contiguous(), inner),
                transfers.contiguous(),
                n,
                shape,
                BLOCK,
                num_warps=_choose_warps(shape, features.dtype),
            )
    return value, inner


def gradient(
    features: Tensor,
    transfers: Tensor,
    inner: Tensor,
    weights: Tensor,
    code: Sequence[int],
    by_features: bool,
) -> tuple[Tensor, Tensor]:
    """Implement `reference.gradient`; the first result is empty unless `by_features`.

    Each program sums over its samples, the last to finish of each group of programs over the group,
    the last of those over the groups: always in the same order, whichever happen to be the last.
    """
    shape, n = _decode(tuple(code)), features.shape[1]
    if n == 0 or not _has_room(shape):
        by_leaf, by_tensor = reference.gradient(features, transfers, inner, weights, shape)
        return by_leaf if by_features else features.new_empty(0), by_tensor
    n_programs = min(triton.cdiv(n, BLOCK), _count_programs(features, shape))
    group = math.isqrt(n_programs - 1) + 1
    n_groups = triton.cdiv(n_programs, group)
    by_leaf = features.new_empty(features.shape if by_features else 0)
    by_inner, by_tensor = inner.new_empty(inner.shape), transfers.new_empty(transfers.shape)
    partial = transfers.new_empty(n_programs + n_groups, shape.n_transfers)
    # Not kept for the next call, which could run at the same time on another stream.
    finished = torch.zeros(n_groups + 1, dtype=torch.int32, device=features.device)
    with torch.cuda.device_of(features):
        _gradient[(n_programs,)](
            (by_leaf if by_features else None, by_inner, weights.contiguous()),
            (by_tensor, partial, finished, group),
            (features.contiguous(), inner.contiguous()),
            transfers.contiguous(),
            n,
            shape,
            BLOCK,
            num_warps=_choose_warps(shape, features.dtype),
        )
    return by_leaf, by_tensor


_decode = cache(TreeShape.decode)  # its checks take longer than a launch


def _has_room(shape: TreeShape) -> bool:
    return max(shape.ranks) <= MAX_RANK and shape.n_leaves <= MAX_LEAVES


def _choose_warps(shape: TreeShape, dtype: torch.dtype) -> int:
    """Choose the number of warps per tile, fewer where tensor cores (float64) multiply."""
    return (4 if max(shape.ranks) <= 16 else 8) // (2 if dtype == torch.float64 else 1)


def _count_programs(features: Tensor, shape: TreeShape) -> int:
    """Choose the number of programs: enough to fill the GPU, as each has its sums."""
    if not features.is_cuda:  # interpreted
        return 7
    processors: int = torch.cuda.get_device_properties(features.device).multi_processor_count
    limit: int = MAX_GROUP.value**2
    return min(4 * processors, limit, MAX_PARTIAL // shape.n_transfers)


@triton.jit
def _contract(value, u, transfers, n: tl.int64, SHAPE: tl.constexpr, BLOCK: tl.constexpr):
    """Store the values of all nodes; `u` has the rows of leaves, of inner nodes."""
    column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    for t in tl.static_range(SHAPE.n_leaves - 1):
        u_t = _evaluate_node(u, transfers, n, column, SHAPE, t)
        if t < SHAPE.n_leaves - 2:
            _store_rows(
                _find_slot(u, n, SHAPE, SHAPE.n_leaves + t), SHAPE.nodes[t].rank, u_t, n, column
            )
            tl.debug_barrier()  # threads read back what others have written
        else:
            tl.store(value + column, tl.sum(u_t, 0), column < n)


@triton.jit
def _evaluate_node(u, transfers, n, column, SHAPE: tl.constexpr, t: tl.constexpr):
    """Return the values of a node, `(rank, samples)`."""
    n_i: tl.constexpr = SHAPE.tensor_shapes[t][0]
    n_j: tl.constexpr = SHAPE.tensor_shapes[t][1]
    n_k: tl.constexpr = SHAPE.tensor_shapes[t][2]
    left = _find_slot(u, n, SHAPE, SHAPE.nodes[t].left)
    u_right = _load_rows(_find_slot(u, n, SHAPE, SHAPE.nodes[t].right), n_j, n, column)
    j, k = tl.arange(0, _pad(n_j))[None, :], tl.arange(0, _pad(n_k))[:, None]
    entry = SHAPE.offsets[t] + j * n_k + k
    mask = (j < n_j) & (k < n_k)
    u_t = tl.zeros((k.shape[0], column.shape[0]), u_right.dtype)
    for i in range(n_i):
        u_left = tl.load(left + i * n + column, column < n, 0.0)[None, :]
        B = tl.load(transfers + i * n_j * n_k + entry, mask, 0.0)
        u_t += u_left * _multiply(B, u_right)
    return u_t


@triton.jit
def _gradient(g, sums, u, transfers, n: tl.int64, SHAPE: tl.constexpr, BLOCK: tl.constexpr):
    """Store derivatives; `g` has the rows of leaves (or None), of inner nodes, of the root."""
    for t in tl.static_range(SHAPE.n_leaves - 2, -1, -1):
        _differentiate_node(g, sums[1], u, transfers, n, SHAPE, t, BLOCK)
    _sum_partial(sums, SHAPE.n_transfers)


@triton.jit
def _differentiate_node(
    g, partial, u, transfers, n, SHAPE: tl.constexpr, t: tl.constexpr, BLOCK: tl.constexpr
):
    """Sum the derivatives by the tensor of a node, stores those by its children."""
    n_i: tl.constexpr = SHAPE.tensor_shapes[t][0]
    n_j: tl.constexpr = SHAPE.tensor_shapes[t][1]
    n_k: tl.constexpr = SHAPE.tensor_shapes[t][2]
    left: tl.constexpr = SHAPE.nodes[t].left
    right: tl.constexpr = SHAPE.nodes[t].right
    go_left: tl.constexpr = left >= SHAPE.n_leaves or g[0] is not None
    go_right: tl.constexpr = right >= SHAPE.n_leaves or g[0] is not None
    j, k = tl.arange(0, _pad(n_j))[:, None], tl.arange(0, _pad(n_k))[None, :]
    entry = SHAPE.offsets[t] + j * n_k + k
    mask = (j < n_j) & (k < n_k)
    own = partial + tl.program_id(0).to(tl.int64) * SHAPE.n_transfers
    first, step = tl.program_id(0).to(tl.int64) * BLOCK, tl.num_programs(0) * BLOCK
    while first < n:
        column = first + tl.arange(0, BLOCK)
        u_right = _load_rows(_find_slot(u, n, SHAPE, right), n_j, n, column)
        g_rows = g[2] if t == SHAPE.n_leaves - 2 else _find_slot(g, n, SHAPE, SHAPE.n_leaves + t)
        g_t = _load_rows(g_rows, n_k, n, column)
        g_right = tl.zeros_like(u_right)
        for i in range(n_i):
            u_left = tl.load(_find_slot(u, n, SHAPE, left) + i * n + column, column < n, 0.0)[
                None, :
            ]
            dB = tl.load(own + i * n_j * n_k + entry, mask & (first >= step), 0.0)
            dB += _multiply(u_left * u_right, tl.trans(g_t))
            tl.store(own + i * n_j * n_k + entry, dB, mask)
            if go_left or go_right:
                B = tl.load(transfers + i * n_j * n_k + entry, mask, 0.0)
                h = _multiply(B, g_t)
            if go_left:
                g_left = _find_slot(g, n, SHAPE, left) + i * n
                tl.store(g_left + column, tl.sum(u_right * h, 0), column < n)
            if go_right:
                g_right += u_left * h
        if go_right:
            _store_rows(_find_slot(g, n, SHAPE, right), n_j, g_right, n, column)
        first += step
        tl.debug_barrier()  # threads read back what others have written


@triton.jit
def _multiply(a, b):
    """Return the product of two matrices, in their own precision; a rank of 1 is not padded."""
    return a * b if a.shape[1] == 1 else tl.dot(a, b, input_precision="ieee", out_dtype=a.dtype)


@triton.constexpr_function
def _pad(rank):
    """Return the padded rows or columns of a rank: a size that `tl.dot` takes, or one."""
    return 1 if rank == 1 else max(16, triton.next_power_of_2(rank))


@triton.jit
def _find_slot(rows, n, SHAPE: tl.constexpr, slot: tl.constexpr):
    """Return the offset of the rows of a slot among leaves or inner nodes."""
    return (rows[0] if slot < SHAPE.n_leaves else rows[1]) + SHAPE.rows[slot] * n


@triton.jit
def _load_rows(rows, count: tl.constexpr, n, column):
    row = tl.arange(0, _pad(count))[:, None]
    mask = (row < count) & (column < n)[None, :]
    return tl.load(rows + row * n + column[None, :], mask, 0.0)


@triton.jit
def _store_rows(rows, count: tl.constexpr, values, n, column):
    row = tl.arange(0, _pad(count))[:, None]
    mask = (row < count) & (column < n)[None, :]
    tl.store(rows + row * n + column[None, :], values, mask)


@triton.jit
def _sum_partial(sums, n_entries: tl.constexpr):
    """Add the sums of all programs, in the programs that finish last."""
    by_tensor, partial, finished, group = sums
    program, n_programs = tl.program_id(0), tl.num_programs(0)
    n_groups, own = tl.cdiv(n_programs, group), program // group
    size = tl.minimum(group, n_programs - own * group)
    by_group = partial + n_programs.to(tl.int64) * n_entries
    if _is_last(finished + own, size):
        by_program = partial + (own * group).to(tl.int64) * n_entries
        _add_rows(by_group + own * n_entries, by_program, size, n_entries)
        if _is_last(finished + n_groups, n_groups):
            _add_rows(by_tensor, by_group, n_groups, n_entries)


@triton.jit
def _is_last(counter, size):
    """Test that `size` programs have arrived; the last may read the results of the others."""
    tl.debug_barrier()  # all threads have written
    return tl.atomic_add(counter, 1, sem="acq_rel") == size - 1


@triton.jit
def _add_rows(out, source, n_rows, n_entries: tl.constexpr):
    row = tl.arange(0, MAX_GROUP)[:, None]
    for start in tl.range(0, n_entries, WIDTH, num_stages=3):  # loads ahead: one program is slow
        column = start + tl.arange(0, WIDTH)
        mask = (row < n_rows) & (column < n_entries)[None, :]
        values = tl.load(source + row * n_entries + column[None, :], mask, 0.0)
        tl.store(out + column, tl.sum(values, 0), column < n_entries)
