"""One part of a structure, calculated without the ranks that have the others.

What those would send is zero, so that time, memory and the bytes of messages are those of such a
part, and results are not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from pipeline_core.profiling.memory import measure_peak
from pipeline_kernels.halo.transports import Messages, Wait

_REPEATS: Final = 3


@dataclass(frozen=True)
class MeasuredPart:
    """A step of one part.

    Attributes:
        own: Its atoms.
        halo: Atoms of other ranks that it receives features of.
        seconds: Median of some steps.
        memory: Growth of memory during a step, bytes; None if the system does not tell.
        received: Bytes of all messages to it in a step.
        exchanges: How often it exchanges rows in a step.
    """

    own: int
    halo: int
    seconds: float
    memory: int | None
    received: int
    exchanges: int


class SilentTransport:
    """A transport to ranks that are not there: what they would send is zero.

    Args:
        rank: Number of this one.
        size: Number of all.

    Attributes:
        bytes_received: Of all messages that would have arrived.
        n_starts: How often messages were started.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.bytes_sent = self.bytes_received = self.n_starts = 0

    def start(self, sent: Messages, received: Messages) -> Wait:
        """As `Transport.start`."""
        self.n_starts += 1
        self.bytes_sent += sum(tensor.nbytes for tensor in sent.values())
        self.bytes_received += sum(tensor.nbytes for tensor in received.values())
        for tensor in received.values():
            tensor.zero_()
        return lambda: None


def measure_part(
    calculate: Callable[[], object],
    transport: SilentTransport,
    rows: tuple[int, int],
    device: torch.device,
) -> MeasuredPart:
    """Measure what one step of a part takes.

    Args:
        calculate: Does the step.
        transport: What the part exchanges by.
        rows: Own atoms, and those of the halo.
        device: Where it is calculated.
    """

    def finish() -> None:
        calculate()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    finish()  # makes what stays
    before = transport.bytes_received, transport.n_starts
    finish()
    received, exchanges = transport.bytes_received - before[0], transport.n_starts - before[1]
    memory = measure_peak(finish, device)
    seconds = []
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        finish()
        seconds.append(time.perf_counter() - begin)
    return MeasuredPart(*rows, float(np.median(seconds)), memory, received, exchanges)
