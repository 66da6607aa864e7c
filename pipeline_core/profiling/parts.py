"""Measurement of one domain of a structure, without the ranks that have the others.

Messages from other ranks are zeros: time, memory and bytes of messages are right, results are not.
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
    """A measured step of one part.

    Attributes:
        own: Number of its own atoms.
        halo: Number of ghost atoms, whose features it receives from other ranks.
        seconds: Median of some steps.
        memory: Growth of memory during a step, bytes; None if the system does not report it.
        received: Bytes of all messages to it in a step.
        exchanges: Number of halo exchanges in a step.
    """

    own: int
    halo: int
    seconds: float
    memory: int | None
    received: int
    exchanges: int


class SilentTransport:
    """Transport to ranks that do not exist: it receives zeros.

    Args:
        rank: This rank.
        size: Number of ranks.

    Attributes:
        bytes_received: Bytes of all messages that would have arrived.
        n_starts: Number of started exchanges.
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
    """Measure time, memory and messages of one step of a part.

    Args:
        calculate: Computes the step.
        transport: Transport of the part.
        rows: Numbers of own atoms and of ghost atoms.
        device: Device of the calculation.
    """

    def finish() -> None:
        calculate()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    finish()  # allocates what stays
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
