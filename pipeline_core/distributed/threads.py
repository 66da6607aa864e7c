"""Threads: how many cores a rank takes, and libraries that would take those of others."""

from __future__ import annotations

from contextlib import AbstractContextManager


def count_threads_per_rank(n_cores: int, n_ranks: int) -> int:
    """Return how many threads each rank takes of the cores that all of them share, at least one."""
    return max(1, n_cores // n_ranks)


def limit_numpy_threads() -> AbstractContextManager[object]:
    """Return a context in which the OpenBLAS of numpy and scipy uses the calling thread only.

    Samples are made in numpy, whose products are small there. Its other threads look for more work
    for milliseconds after each product, on the cores of torch, which has a BLAS of its own.
    """
    from threadpoolctl import ThreadpoolController

    numpy_only = ThreadpoolController().select(prefix="libscipy_openblas")
    limit: AbstractContextManager[object] = numpy_only.limit(limits=1)
    return limit
