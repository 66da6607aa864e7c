"""numba's `njit`, with its cache in a folder that only the user can write.

By default numba caches next to the source or in the user's home, even if others can write there,
and refuses to compile if neither is writable, as in a container. It also reuses the cache of a file
after a loop or constant that the file imports has changed. Here each state of a folder of sources
has its own cache folder, so compiled loops may import from their own folder only.
"""

import hashlib
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba

from pipeline_kernels.cache import open_numba_cache

F = TypeVar("F", bound=Callable[..., Any])


def njit(**options: Any) -> Callable[[F], F]:
    """Return the decorator `numba.njit` with these options, and with `cache`."""

    def compile_later(function: F) -> F:
        folder = _locate(Path(inspect.getfile(function)).parent)
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(folder)
        try:
            compiled: F = numba.njit(cache=True, **options)(function)
        finally:
            numba.config.CACHE_DIR = before
        return compiled

    return compile_later


@cache
def _locate(sources: Path) -> Path:
    """Return the cache folder for the present state of a folder of Python files."""
    digest = hashlib.sha256()
    for path in sorted(sources.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return open_numba_cache(sources) / digest.hexdigest()[:24]
