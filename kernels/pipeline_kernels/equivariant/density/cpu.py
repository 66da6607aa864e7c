"""The density on the CPU: numba, an edge at a time, with its sums in the cache."""

from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline_kernels.equivariant.density.basis import SOFTENING, DensityBasis
from pipeline_kernels.equivariant.harmonics import compute_harmonic_norms
from pipeline_kernels.jit import njit
from pipeline_kernels.message import Segments
from pipeline_kernels.threads import choose_threads, run_in_threads

Reals = NDArray[np.floating]
Integers = NDArray[np.int64]
CHUNK = 64  # edges that a thread takes at a time


def bond_density(
    vectors: Tensor, kinds: Tensor, receivers: Segments, basis: DensityBasis, dtype: torch.dtype
) -> Tensor:
    """Implement `op.bond_density`."""
    native_type = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    density = vectors.new_empty(len(vectors), *basis.shape, dtype=native_type)
    edges = (vectors.contiguous().numpy(), kinds.contiguous().numpy())
    lists = (receivers.index.numpy(), receivers.order.numpy(), receivers.offsets.numpy())
    norms, radial = (
        compute_harmonic_norms(basis.lmax),
        (basis.n_functions, basis.cutoff, basis.width),
    )
    numbers, n = count(), len(vectors)
    out = density.numpy()

    def work() -> None:
        while (start := next(numbers) * CHUNK) < n:
            _project(edges, lists, norms, radial, out, start, min(start + CHUNK, n))

    run_in_threads(work, choose_threads(density.numel()))
    return density.to(dtype)


@njit(nogil=True)
def _project(
    edges: tuple[Reals, Integers],
    lists: tuple[Integers, Integers, Integers],
    norms: Reals,
    radial_basis: tuple[int, float, float],
    out: Reals,
    begin: int,
    end: int,
) -> None:
    vectors, kinds = edges
    index, order, offsets = lists
    n_functions, cutoff, width = radial_basis
    harmonics, radial = np.empty(out.shape[1]), np.empty(n_functions)
    sums = np.empty(out.shape[1:])
    for e in range(begin, end):
        sums[:] = 0
        s = index[e]
        for k in range(offsets[s], offsets[s + 1]):
            other = order[k] if len(order) else k
            x = vectors[other, 0] - 0.5 * vectors[e, 0]
            y = vectors[other, 1] - 0.5 * vectors[e, 1]
            z = vectors[other, 2] - 0.5 * vectors[e, 2]
            square = x * x + y * y + z * z
            if other == e or square >= cutoff * cutoff:
                continue
            length = np.sqrt(square + SOFTENING * SOFTENING)
            _harmonics(x / length, y / length, z / length, norms, harmonics)
            end = (1 - square / (cutoff * cutoff)) ** 2
            for n in range(n_functions):
                radial[n] = end * np.exp(-0.5 * ((length - SOFTENING) / width - n) ** 2)
            first = kinds[other] * n_functions
            for h in range(len(harmonics)):
                for n in range(n_functions):
                    sums[h, first + n] += harmonics[h] * radial[n]
        out[e] = sums


@njit(nogil=True)
def _harmonics(x: float, y: float, z: float, norms: Reals, out: Reals) -> None:
    """Do what `solid_harmonics` does."""
    lmax, square = len(norms) - 1, x * x + y * y + z * z
    cosine, sine = 1.0, 0.0
    for m in range(lmax + 1):
        if m:
            cosine, sine = x * cosine - y * sine, x * sine + y * cosine
        below, legendre = 0.0, 1.0
        for degree in range(m, lmax + 1):
            if degree > m:
                above = (2 * degree - 1) * z * legendre - (degree + m - 1) * square * below
                below, legendre = legendre, above / (degree - m)
            middle = degree * (degree + 1)
            out[middle + m] = norms[degree, m] * legendre * cosine
            if m:
                out[middle - m] = norms[degree, m] * legendre * sine
