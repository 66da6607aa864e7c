"""Threads: cores per rank, and limits of libraries that would take more."""

from contextlib import AbstractContextManager


def count_threads_per_rank(n_cores: int, n_ranks: int) -> int:
    """Return the number of threads of each rank when all share some cores, at least one."""
    return max(1, n_cores // n_ranks)


def limit_numpy_threads() -> AbstractContextManager[object]:
    """Return a context in which the OpenBLAS of numpy and scipy uses the calling thread only.

    Samples are made in numpy, with small matrix products. Its other threads spin for milliseconds
    after each product, on the cores of torch, which has a BLAS of its own.
    """
    from threadpoolctl import ThreadpoolController

    numpy_only = ThreadpoolController().select(prefix="libscipy_openblas")
    limit: AbstractContextManager[object] = numpy_only.limit(limits=1)
    return limit
