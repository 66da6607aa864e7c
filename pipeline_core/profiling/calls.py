"""Time and peak memory of a call."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from pipeline_core.profiling.memory import measure_peak


@dataclass(frozen=True)
class Measurement:
    """Measured calls of a function.

    Attributes:
        seconds: Time of each call.
        memory: Largest growth of memory within a call, bytes; None if the system does not report
            it.
    """

    seconds: tuple[float, ...]
    memory: int | None

    @property
    def median(self) -> float:
        """Median of the seconds."""
        return float(np.median(self.seconds))


def measure(call: Callable[[], object], device: torch.device, repeats: int) -> Measurement:
    """Measure the memory of a call, and the time of others.

    Args:
        call: Called once to allocate what stays, once for its memory, and `repeats` times for its
            time.
        device: Device of its work, waited for.
        repeats: Number of timed calls.
    """

    def finish() -> None:
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    finish()
    memory = measure_peak(finish, device)
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        finish()
        seconds.append(time.perf_counter() - begin)
    return Measurement(tuple(seconds), memory)
