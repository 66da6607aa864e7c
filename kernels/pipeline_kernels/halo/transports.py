"""Transports: point-to-point messages of a halo exchange between ranks."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor
from torch import distributed as dist

Messages = Mapping[int, Tensor]
"""One contiguous tensor for each rank that sends or gets any; never an empty one."""

Wait = Callable[[], None]
"""Returns when all messages have arrived and send buffers may be overwritten."""


class Transport(Protocol):
    """The interface of all transports.

    Messages between two ranks arrive in the order in which they were started, so the ranks have to
    start their exchanges in the same order.

    Attributes:
        rank: Number of this process.
        size: Number of processes.
    """

    rank: int
    size: int

    @property
    def bytes_sent(self) -> int:
        """Bytes that this process has sent to other ranks through this object."""
        ...

    def start(self, sent: Messages, received: Messages) -> Wait:
        """Post messages and return at once; every rank calls it, even with none.

        Args:
            sent: The rows for each rank; not to be overwritten before the wait is over.
            received: Buffers for the rows of each rank.

        Raises:
            ValueError: if the transport cannot carry tensors of this device.
        """
        ...


class SelfTransport:
    """One rank, without messages."""

    rank, size = 0, 1

    def __init__(self) -> None:
        self.bytes_sent = 0

    def start(self, sent: Messages, received: Messages) -> Wait:
        """As `Transport.start`."""
        assert not sent
        assert not received
        return lambda: None


class TorchTransport:
    """Point-to-point messages of `torch.distributed`: gloo on CPUs, NCCL on GPUs.

    Args:
        group: The process group whose ranks hold the parts; by default all.
        device: Device of the tensors. For a GPU, making the transport is a collective call,
            since NCCL lets ranks without neighbours sit out a batch only after such a call.

    Raises:
        ValueError: if no process group is open or this process is not in it.
    """

    def __init__(
        self, group: dist.ProcessGroup | None = None, device: torch.device | str = "cpu"
    ) -> None:
        if not dist.is_initialized():
            raise ValueError(
                "TorchTransport: expected an open process group, got none; call "
                "torch.distributed.init_process_group first, or use SelfTransport on one rank"
            )
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise ValueError(
                "TorchTransport: expected a group with this process in it, got one without; "
                "let only the ranks of the group exchange"
            )
        self.bytes_sent = 0
        self._group, self._device = group, torch.device(device).type
        if self._device == "cuda":
            dist.all_reduce(torch.zeros(1, device=device), group=group)

    def start(self, sent: Messages, received: Messages) -> Wait:
        """As `Transport.start`."""
        for tensor in (*sent.values(), *received.values()):
            if tensor.device.type != self._device:
                raise ValueError(
                    f"TorchTransport: expected tensors on {self._device}, got one on "
                    f"{tensor.device}; make it as TorchTransport(device=...) of that device"
                )
        operations = [
            dist.P2POp(operation, tensor, group=self._group, group_peer=peer)
            for operation, messages in ((dist.irecv, received), (dist.isend, sent))
            for peer, tensor in messages.items()
        ]
        self.bytes_sent += sum(tensor.nbytes for tensor in sent.values())
        works = dist.batch_isend_irecv(operations) if operations else []
        return partial(_wait_for_all, works, sent)


def _wait_for_all(works: Sequence[dist.Work], sent: Messages) -> None:
    """Wait, and keep the send buffers alive until then."""
    for work in works:
        work.wait()


class ThroughCpu:
    """Tensors of any device over a transport for CPUs: copies on both sides.

    For ranks that share a GPU, which NCCL refuses.

    Args:
        transport: The transport of the copies.
    """

    def __init__(self, transport: Transport) -> None:
        self.rank, self.size = transport.rank, transport.size
        self._inner = transport

    @property
    def bytes_sent(self) -> int:
        """Bytes that this process has sent to other ranks through the inner transport."""
        return self._inner.bytes_sent

    def start(self, sent: Messages, received: Messages) -> Wait:
        """As `Transport.start`."""
        copies = {peer: torch.empty_like(tensor, device="cpu") for peer, tensor in received.items()}
        wait_for_copies = self._inner.start(
            {peer: tensor.cpu() for peer, tensor in sent.items()}, copies
        )

        def wait() -> None:
            wait_for_copies()
            for peer, copy in copies.items():
                received[peer].copy_(copy)

        return wait
