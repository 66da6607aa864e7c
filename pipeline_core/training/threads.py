"""Threads of libraries that take cores from the steps of a training."""

from __future__ import annotations

from contextlib import AbstractContextManager

from threadpoolctl import ThreadpoolController


def numpy_in_one_thread() -> AbstractContextManager[object]:
    """Return a context in which the OpenBLAS of numpy and scipy uses the calling thread only.

    Samples are made in numpy, whose products are small there. Its other threads look for more work
    for milliseconds after each product, on the cores of torch, which has a BLAS of its own.
    """
    numpy_only = ThreadpoolController().select(prefix="libscipy_openblas")
    limit: AbstractContextManager[object] = numpy_only.limit(limits=1)
    return limit
