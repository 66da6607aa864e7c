"""Times of functions that are called in turn, and rates of the machine."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

Call = Callable[[], Any]


def time_call(function: Call, device: str = "cpu") -> float:
    """Return the wall time of one call, the device's queue emptied before and after."""
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    synchronize()
    begin = time.perf_counter()
    function()
    synchronize()
    return time.perf_counter() - begin


def time_turns(functions: Sequence[Call], device: str, repeats: int) -> list[tuple[float, ...]]:
    """Return the times of each function, called in turn."""
    rounds = [[time_call(function, device) for function in functions] for _ in range(repeats)]
    return list(zip(*rounds, strict=True))


def time_fastest(functions: Sequence[Call], device: str, repeats: int) -> list[float]:
    """Return the smallest time of each function, called in turn; the first round compiles."""
    return [min(times[1:]) for times in time_turns(functions, device, repeats + 1)]


def measure_copy(device: str, repeats: int) -> float:
    """Return bytes read and written a second by a copy between two buffers of 256 MiB."""
    source = torch.ones(1 << 28, dtype=torch.uint8, device=device)  # zeros may share one page
    target = torch.empty_like(source)
    return 2 * source.nbytes / time_fastest([lambda: target.copy_(source)], device, repeats)[0]


def measure_matrix_rate(device: str, dtype: torch.dtype, size: int = 2048) -> float:
    """Return operations a second of a large product of matrices, the best of ten."""
    a = torch.rand(size, size, device=device, dtype=dtype)
    return 2 * size**3 / min(time_call(lambda: a @ a, device) for _ in range(10))
