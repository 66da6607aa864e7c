"""What the C library does with memory that tensors give back."""

from __future__ import annotations

import ctypes
import platform
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_MAX: Final = -4
"""Names of options in <malloc.h> of glibc."""


def keep_freed_memory() -> bool:
    """Let this process keep memory that it frees, for what it allocates next.

    The steps of a training allocate the same large tensors again and again. glibc gives those back
    to the system at once, and each page costs a fault when it is first touched again.

    Returns:
        Whether the C library knows how; other ones than glibc are left as they are.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, -1))
