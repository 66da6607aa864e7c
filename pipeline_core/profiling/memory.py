"""Peak memory of a call, and free memory of the machine."""

import ctypes
import gc
from collections.abc import Callable

import torch

from pipeline_core.system.memory import (
    find_free_memory,
    find_peak_memory,
    find_resident_memory,
    reset_peak_memory,
)


def measure_peak(call: Callable[[], object], device: torch.device) -> int | None:
    """Call a function; return its peak memory, less the memory in use before.

    Args:
        call: The function.
        device: Device of the memory: on a GPU the bytes of torch's tensors, else the resident
            memory of this process, to a few hundred kilobytes.

    Returns:
        Bytes; None on a system that does not report them (a CPU without Linux's /proc).
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    return _measure_resident_peak(call)


def find_free_bytes(device: torch.device) -> int:
    """Return the bytes that are free on a GPU, or in the memory and for the job of a CPU."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + kept)
    return find_free_memory()


def find_used_bytes(device: torch.device) -> int:
    """Return the bytes of torch's tensors on a GPU, or the resident memory of this process."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return find_resident_memory()


def _measure_resident_peak(call: Callable[[], object]) -> int | None:
    gc.collect()
    c_library = ctypes.CDLL(None)
    if hasattr(c_library, "malloc_trim"):  # of glibc: what is free but kept would hide the growth
        c_library.malloc_trim(0)
    before = find_resident_memory()
    is_reset = reset_peak_memory()
    call()
    peak = find_peak_memory() if is_reset else None
    return None if peak is None else max(0, peak - before)
