"""numba's `njit`, which keeps what it has compiled wherever the package lies.

By itself it keeps that beside the source or in the user's home, and refuses to compile at all where
neither can be written, as in a container.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

from pipeline_kernels.cache import open_cache

F = TypeVar("F", bound=Callable[..., Any])


def njit(**options: Any) -> Callable[[F], F]:
    """Return the decorator `numba.njit` with these options, and with `cache`."""

    def compile_later(function: F) -> F:
        try:
            compiled: F = numba.njit(cache=True, **options)(function)
        except RuntimeError:  # no locator available
            before = numba.config.CACHE_DIR
            numba.config.CACHE_DIR = str(open_cache())
            try:
                compiled = numba.njit(cache=True, **options)(function)
            finally:
                numba.config.CACHE_DIR = before
        return compiled

    return compile_later
