"""Free and used memory of this machine and this job, whose control groups may limit it."""

import ctypes
import os
import platform
from pathlib import Path
from typing import Final

import psutil

_PROCESS: Final = Path("/proc/self")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_UNASKED: Final = 100_000_000
"""Bytes below which free memory is not checked."""
_TRIM_THRESHOLD: Final = -1
_MMAP_MAX: Final = -4
"""Names of options in <malloc.h> of glibc."""


class NoRoomError(ValueError):
    """Memory does not suffice in this process; others may have more."""


def find_free_memory() -> int:
    """Return the bytes of memory that are free for the job of this process."""
    return min([int(psutil.virtual_memory().available), *_list_free_bytes()])


def find_resident_memory() -> int:
    """Return the bytes of memory that this process holds."""
    return int(psutil.Process().memory_info().rss)


def find_peak_memory() -> int | None:
    """Return the peak memory of this process so far, or since `reset_peak_memory`, in bytes.

    None on a system that does not report it.
    """
    try:
        return 1024 * _read_number(_PROCESS / "status", "VmHWM:")
    except OSError:
        return None


def reset_peak_memory() -> bool:
    """Restart the count of `find_peak_memory`; return False if the system cannot."""
    try:
        (_PROCESS / "clear_refs").write_text("5")
    except OSError:
        return False
    return True


def find_total_memory() -> int:
    """Return the bytes of memory of this machine."""
    return int(psutil.virtual_memory().total)


def keep_freed_memory() -> bool:
    """Make this process keep freed memory for its next allocations.

    Steps of training or dynamics allocate the same large tensors again and again. glibc returns
    their memory to the system at once, and each page is filled with zeros when it is next touched:
    up to 40 % of the time of a step of thousands of atoms. Kept memory is fragmented, so that such
    steps take a third to a half more memory. A user's own settings of glibc's allocator, in
    variables that begin with `MALLOC_`, take precedence.

    Returns:
        True if it does; C libraries other than glibc are left as they are.
    """
    is_set = any(name.startswith("MALLOC_") for name in os.environ)
    if is_set or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, -1))


def require_free(n_bytes: float, what: str, cure: str) -> None:
    """Check that enough memory is free for an allocation.

    Args:
        n_bytes: Lower bound of its size.
        what: What is allocated, in the plural, for the message.
        cure: What to do, for the message.

    Raises:
        NoRoomError: Less is free.
    """
    if n_bytes < _UNASKED:
        return
    free = find_free_memory()
    if n_bytes > free:
        raise NoRoomError(
            f"{what} take at least {describe_bytes(n_bytes)}, and {describe_bytes(free)} of memory "
            f"are free; {cure}"
        )


def describe_bytes(count: float) -> str:
    """Return a number of bytes in readable form, such as "12.5 GB"."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PB"


def _read_number(path: Path, name: str) -> int:
    """Return the number behind a name at the beginning of a line of a file.

    Raises:
        OSError: The file cannot be read, or has no such line.
    """
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    raise OSError(f"{path}: no line begins with {name}")


def _list_free_bytes() -> list[int]:
    """Return the bytes left to each control group of this process, as those of Slurm."""
    unified = [s for s in _read_lines(_PROCESS / "cgroup") if s.startswith("0::")]
    own = _CGROUPS / unified[0].removeprefix("0::/") if unified else _CGROUPS
    left = []
    for group in (own, *own.parents):
        limit = "".join(_read_lines(group / "memory.max"))
        if group.is_relative_to(_CGROUPS) and limit.isdecimal():
            used = int((group / "memory.current").read_text())
            cached = _read_number(group / "memory.stat", "inactive_file ")  # reclaimed when needed
            left.append(int(limit) - used + cached)
    return left


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
