"""The folder in which compiled code is kept, and who may have written it.

What lies there is executed, so it counts only if nobody but this user can have put it there.
"""

import atexit
import os
import shutil
import stat
import tempfile
import warnings
from functools import cache
from pathlib import Path

VARIABLE = "PIPELINE_KERNELS_CACHE"
OTHERS = stat.S_IWGRP | stat.S_IWOTH


def open_cache() -> Path:
    """Return the folder, after making it unless it is there.

    Without a usable folder of the user, as in a container without a home, it is a temporary one
    that goes with the process; the user has been warned.

    Raises:
        OSError: if `PIPELINE_KERNELS_CACHE` names a folder that cannot be used.
    """
    if chosen := os.environ.get(VARIABLE):
        return _prepare(Path(chosen))
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return _prepare(Path(base) / "pipeline_kernels")
    except (OSError, RuntimeError) as error:  # the latter without any home
        return _make_temporary(str(error))


def is_private(path: Path) -> bool:
    """Return whether a file or folder belongs to this user, and no other can write it."""
    found = path.stat()
    return found.st_uid == os.geteuid() and not found.st_mode & OTHERS


def _prepare(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"{error}; set {VARIABLE} to a folder of yours") from error
    if not is_private(folder):
        raise OSError(
            f"{folder}: others can write here or own it, and compiled code would be executed; "
            f"chmod 700 it if it is yours, or set {VARIABLE} to a folder of yours"
        )
    for parent in folder.resolve().parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise OSError(
                f"{folder}: everyone can replace it, as {parent} is open to all; "
                f"set {VARIABLE} to a folder of yours"
            )
    if not os.access(folder, os.W_OK):
        raise OSError(f"{folder}: cannot be written; set {VARIABLE} to a folder of yours")
    return folder


@cache
def _make_temporary(reason: str) -> Path:
    folder = tempfile.mkdtemp(prefix="pipeline_kernels_")  # of mode 700
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    warnings.warn(
        f"{reason}. Compiled code is kept in {folder} and compiled anew by each process",
        RuntimeWarning,
        stacklevel=2,
    )
    return Path(folder)
