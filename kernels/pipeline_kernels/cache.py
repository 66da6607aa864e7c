"""Cache folders of compiled code, and checks of their owner.

Cached code is executed, so it is used only if nobody but this user can have written it: C
libraries, and the caches of numba and Triton (numba's files are pickles, too).

| variable                 | the folder of                                                   |
|--------------------------|-----------------------------------------------------------------|
| `PIPELINE_KERNELS_CACHE` | all of them, `$XDG_CACHE_HOME/pipeline_kernels` if not set      |
| `NUMBA_CACHE_DIR`        | numba, `__pycache__` next to a source of this user if not set   |
| `TRITON_CACHE_DIR`       | Triton                                                          |
"""

import atexit
import os
import shutil
import stat
import tempfile
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path

VARIABLE = "PIPELINE_KERNELS_CACHE"
OTHERS = stat.S_IWGRP | stat.S_IWOTH


def open_cache() -> Path:
    """Return the folder, after creating it if it is missing.

    Without a usable folder of the user, as in a container without a home, it is a temporary one
    that goes with the process; the user has been warned.

    Raises:
        OSError: if `PIPELINE_KERNELS_CACHE` names a folder that cannot be used.
    """
    try:
        return find_cache()
    except OSError as error:
        if os.environ.get(VARIABLE):
            raise
        return _fall_back(str(error))


def open_numba_cache(sources: Path) -> Path:
    """Return the folder of numba's cache for the Python files of a folder.

    Without a usable one it is temporary, as for `open_cache`.
    """
    try:
        return find_numba_cache(sources)
    except OSError as error:
        return prepare(_fall_back(str(error)) / "numba")


def find_cache(program: str = "", variable: str = VARIABLE) -> Path:
    """Return the folder of the user, after creating it if it is missing.

    Args:
        program: a program that keeps files of its own there, such as Triton.
        variable: what names a folder in its place.

    Raises:
        OSError: if there is none that can be used.
    """
    if chosen := os.environ.get(variable):
        return prepare(Path(chosen), variable)
    if program:
        return prepare(find_cache() / program)
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:
        raise OSError(f"{error}; set {VARIABLE} to a folder of yours") from error
    return prepare(Path(base) / "pipeline_kernels")


def find_numba_cache(sources: Path) -> Path:
    """Return the folder of numba's cache for the Python files of a folder.

    It is beside them if it can be, so that a clone or an environment of one user compiles once.

    Raises:
        OSError: if there is none that can be used.
    """
    if not os.environ.get("NUMBA_CACHE_DIR"):
        with suppress(OSError):  # where it belongs to somebody else, or cannot be written
            return prepare(sources / "__pycache__" / "numba")
    return find_cache("numba", "NUMBA_CACHE_DIR")


@cache
def protect_triton() -> None:
    """Make Triton, here and in child processes, keep compiled code where nobody else writes."""
    try:
        folder = find_cache("triton", "TRITON_CACHE_DIR")
    except OSError as error:
        folder = prepare(_fall_back(str(error)) / "triton")
    os.environ["TRITON_CACHE_DIR"] = str(folder)


def is_private(path: Path) -> bool:
    """Test that a file or folder belongs to this user and no other can write it."""
    found = path.stat()
    return found.st_uid == os.geteuid() and not found.st_mode & OTHERS


def prepare(folder: Path, variable: str = VARIABLE) -> Path:
    """Return a folder, after creating it if it is missing.

    Args:
        folder: the folder.
        variable: environment variable that sets it, for messages.

    Raises:
        OSError: if it cannot be written, or others could have put code there.
    """
    cure = f"set {variable} to a folder of yours"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"{error}; {cure}") from error
    if not is_private(folder):
        raise OSError(
            f"{folder}: others can write here or own it, and compiled code would be executed; "
            f"chmod 700 it if it is yours, or {cure}"
        )
    for parent in folder.resolve().parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise OSError(f"{folder}: everyone can replace it, as {parent} is open to all; {cure}")
    if not os.access(folder, os.W_OK):
        raise OSError(f"{folder}: cannot be written; {cure}")
    return folder


def _fall_back(reason: str) -> Path:
    """Return the temporary folder of this process; warn of the first reason for it."""
    is_first = not _make_temporary.cache_info().currsize
    folder = _make_temporary()
    if is_first:
        warnings.warn(
            f"{reason}. Compiled code is kept in {folder} and compiled anew by each process",
            RuntimeWarning,
            stacklevel=3,
        )
    return folder


@cache
def _make_temporary() -> Path:
    folder = tempfile.mkdtemp(prefix="pipeline_kernels_")  # of mode 700
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
