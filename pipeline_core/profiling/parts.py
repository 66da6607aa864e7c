"""Measurement of one domain of a structure, without the ranks that have the others.

Messages from other ranks are zeros: time, memory and bytes of messages are right, results are not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from pipeline_core.config.sections import Link
from pipeline_core.profiling.calls import measure
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

    def predict_messages(self, link: Link, halo: float, peers: int) -> float:
        """Return the time of the messages of a step of another part, s.

        Args:
            link: Link between ranks.
            halo: Number of its ghost atoms.
            peers: Number of ranks that it receives them from.
        """
        return link.time(halo * self.received / self.halo, self.exchanges * peers)


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
    calculate()  # allocates what stays
    before = transport.bytes_received, transport.n_starts
    measured, calls = measure(calculate, device, _REPEATS), 2 + _REPEATS
    received = (transport.bytes_received - before[0]) // calls
    exchanges = (transport.n_starts - before[1]) // calls
    return MeasuredPart(*rows, measured.median, measured.memory, received, exchanges)
