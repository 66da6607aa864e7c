"""numba's `njit`, with its cache in a folder that only the user can write.

By itself it keeps that beside the source or in the user's home, whoever else can write there, and
refuses to compile at all where neither can be written, as in a container. It also takes what it has
kept for a file though a loop or a constant that this imports is another by now. Here each state of
a folder of sources has a folder of its own, so compiled loops may import from their own folder
alone.
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
