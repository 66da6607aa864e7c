"""Edge frames and the rotation of features to them, in plain PyTorch."""

from functools import cache

import numpy as np
import torch
from torch import Tensor

from pipeline_kernels.equivariant.clebsch_gordan import clebsch_gordan

PERMUTATION = (1, 2, 0)  # of x, y, z, to the vectors of e3nn
SWAP = np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, -1]])  # D_1 of the J matrices
CHUNK = 1024  # edges whose intermediate results stay in the cache


def count_entries(lmax: int) -> int:
    """Return the number of entries of the blocks of degree 0 to `lmax`."""
    return sum((2 * degree + 1) ** 2 for degree in range(lmax + 1))


def build_frames(vectors: Tensor, lmax: int, dtype: torch.dtype) -> Tensor:
    """Implement `op.compute_edge_frames` for vectors in float64."""
    frames = vectors.new_empty(len(vectors), count_entries(lmax), dtype=dtype)
    for vector, part in zip(vectors.split(CHUNK), frames.split(CHUNK), strict=True):
        length = torch.linalg.vector_norm(vector, dim=1, keepdim=True)
        first, polar, third = (vector / length)[:, PERMUTATION].unbind(1)
        part.copy_(_build_frames(first, polar, third, lmax))
    return frames


def rotate(x: Tensor, frames: Tensor, transposed: bool = False) -> Tensor:
    """Multiply features of each edge by its Wigner matrices, in plain PyTorch.

    Args:
        x: features `(n_edges, (lmax + 1)^2, C)`.
        frames: from `compute_edge_frames`, `(n_edges, count_entries(lmax))`.
        transposed: turns back from the frame of the edge.

    Returns:
        Features `(n_edges, (lmax + 1)^2, C)`.
    """
    parts, begin = [], 0
    for degree, rows in enumerate(_split_by_degree(x)):
        d = 2 * degree + 1
        D = frames[:, begin : begin + d * d].unflatten(1, (d, d))
        parts.append(torch.bmm(D.mT if transposed else D, rows))
        begin += d * d
    return torch.cat(parts, 1)


def _split_by_degree(x: Tensor) -> list[Tensor]:
    lmax = round(x.shape[1] ** 0.5) - 1
    return [x[:, degree**2 : (degree + 1) ** 2] for degree in range(lmax + 1)]


def _build_frames(first: Tensor, polar: Tensor, third: Tensor, lmax: int) -> Tensor:
    """Sum `D[i, j] = K[i, j] cos(m_j a) - K[i, -j] sin(m_j a)` with `K = J Z(-b) J`."""
    across = torch.hypot(first, third)
    on_axis = across == 0
    cos_a = torch.where(on_axis, 1.0, third / across)
    sin_a = torch.where(on_axis, 0.0, first / across)
    by_b, flipped, cosines, sines = (table.to(polar.device) for table in build_tables(lmax))
    a, b = (
        _compute_waves(cos_a, sin_a, lmax),
        _compute_waves(polar, across, lmax),
    )  # (n, 2 lmax + 1)
    return (b @ by_b).mul_(a @ cosines).add_((b @ flipped).mul_(a @ sines))


def _compute_waves(cosine: Tensor, sine: Tensor, lmax: int) -> Tensor:
    """Return `1, cos(t), sin(t), ..., cos(lmax t), sin(lmax t)` in columns."""
    columns = [torch.ones_like(cosine)]
    c, s = torch.ones_like(cosine), torch.zeros_like(cosine)
    for _ in range(lmax):
        c, s = c * cosine - s * sine, s * cosine + c * sine
        columns += [c, s]
    return torch.stack(columns, 1)


@cache
def build_tables(lmax: int) -> tuple[Tensor, ...]:
    """Return the matrices that make K, K with columns m and -m exchanged, cosines and sines.

    Each is `(2 lmax + 1, count_entries(lmax))`, in terms of `_compute_waves`.
    """
    tables = np.zeros((4, 2 * lmax + 1, count_entries(lmax)))
    begin = 0
    for degree in range(lmax + 1):
        J, d = build_axis_swap(degree), 2 * degree + 1
        block = tables[:, :, begin : begin + d * d].reshape(4, -1, d, d)
        begin += d * d
        block[0, : 2 * degree + 1] = np.einsum("ij,wjk,kl->wil", J, _expand_turn(degree), J)
        block[1] = block[0, :, :, ::-1]
        for j, m in enumerate(range(-degree, degree + 1)):
            block[2, max(0, 2 * abs(m) - 1), :, j] = 1
            if m:
                block[3, 2 * abs(m), :, j] = -np.sign(m)
        tables[:, :, begin - d * d : begin] = block.reshape(4, -1, d * d)
    by_b, flipped, cosines, sines = torch.from_numpy(tables)
    return by_b, flipped, cosines, sines


def _expand_turn(degree: int) -> np.ndarray:
    """Return the coefficients `(2 l + 1, 2 l + 1, 2 l + 1)` of `_compute_waves(t)` in `Z(-t)`."""
    turns = np.zeros((2 * degree + 1,) * 3)
    for i, m in enumerate(range(-degree, degree + 1)):
        turns[max(0, 2 * abs(m) - 1), i, i] = 1
        if m:
            turns[2 * abs(m), i, -1 - i] = np.sign(m)
    return turns


@cache
def build_axis_swap(degree: int) -> np.ndarray:
    """Return `J_l`, `(2 l + 1, 2 l + 1)`, by coupling degrees l - 1 and 1 to l."""
    if degree == 0:
        return np.ones((1, 1))
    if degree == 1:
        return SWAP
    C = clebsch_gordan(degree - 1, 1, degree)
    lower = build_axis_swap(degree - 1)
    swap: np.ndarray = np.einsum("abc,ad,be,def->cf", C, lower, SWAP, C)
    return (2 * degree + 1) * swap
