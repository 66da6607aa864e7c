"""What carries the messages of an exchange between ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist

Messages = Mapping[int, Tensor]
"""One contiguous tensor for each rank that sends or gets any; never an empty one."""

Wait = Callable[[], None]
"""Returns when all messages have arrived, and those sent may be overwritten."""


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
        """What this process has sent to others through this object."""
        ...

    def start(self, sent: Messages, received: Messages) -> Wait:
        """Posts messages and returns at once; every rank calls it, even with none.

        Args:
            sent: What goes to each rank; nobody may write to it until the wait is over.
            received: Where that of each rank is to be written.

        Raises:
            ValueError: if the transport cannot carry tensors of this device.
        """
        ...


class SelfTransport:
    """One rank, which has nobody to talk to."""

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
        device: Where the tensors will be. For a GPU, making the transport is a collective call,
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
        cure = f"make it as TorchTransport(device=...), not for {self._device}"
        _check_device("TorchTransport", self._device, (sent, received), cure)
        operations = [
            dist.P2POp(operation, tensor, group=self._group, group_peer=peer)
            for operation, messages in ((dist.irecv, received), (dist.isend, sent))
            for peer, tensor in messages.items()
        ]
        self.bytes_sent += _count_bytes(sent)
        works = dist.batch_isend_irecv(operations) if operations else []
        return partial(_wait_for_all, works, sent)


def _wait_for_all(works: Sequence[dist.Work], sent: Messages) -> None:
    """Wait, and keeps alive until then what is sent."""
    for work in works:
        work.wait()


class MPITransport:
    """Non-blocking messages of MPI, as bytes, so that MPI need not know the dtype.

    MPI may carry a large message only while a call of MPI runs, that is during the wait.

    Args:
        comm: The mpi4py communicator whose ranks hold the parts; by default all. A private copy is
            made of it, so that no other message can be mistaken for one of ours: a collective call.
    """

    def __init__(self, comm: Any = None) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._comm = (MPI.COMM_WORLD if comm is None else comm).Dup()
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        self.bytes_sent = 0

    def start(self, sent: Messages, received: Messages) -> Wait:
        """As `Transport.start`."""
        cure = "wrap it as ThroughCpu(MPITransport()), or use TorchTransport with NCCL"
        _check_device("MPITransport", "cpu", (sent, received), cure)
        post = {self._comm.Irecv: received, self._comm.Isend: sent}
        requests = [
            call([_view_bytes(tensor), self._mpi.BYTE], peer)
            for call, messages in post.items()
            for peer, tensor in messages.items()
        ]
        self.bytes_sent += _count_bytes(sent)
        return lambda: self._mpi.Request.Waitall(requests)


class ThroughCpu:
    """Tensors of any device over a transport for CPUs: copies on both sides.

    For ranks that share a GPU, which NCCL refuses, and for MPI without support for GPUs.

    Args:
        transport: What carries the copies.
    """

    def __init__(self, transport: Transport) -> None:
        self.rank, self.size = transport.rank, transport.size
        self._inner = transport

    @property
    def bytes_sent(self) -> int:
        """What this process has sent to others through the inner transport."""
        return self._inner.bytes_sent

    def start(self, sent: Messages, received: Messages) -> Wait:
        """As `Transport.start`."""
        copies = {peer: torch.empty_like(tensor, device="cpu") for peer, tensor in received.items()}
        arrive = self._inner.start({peer: tensor.cpu() for peer, tensor in sent.items()}, copies)

        def wait() -> None:
            arrive()
            for peer, copy in copies.items():
                received[peer].copy_(copy)

        return wait


def _check_device(name: str, device: str, messages: Sequence[Messages], cure: str) -> None:
    for tensor in (tensor for half in messages for tensor in half.values()):
        if tensor.device.type != device:
            raise ValueError(
                f"{name}: expected tensors on {device}, got one on {tensor.device}; {cure}"
            )


def _count_bytes(messages: Messages) -> int:
    return sum(tensor.nbytes for tensor in messages.values())


def _view_bytes(tensor: Tensor) -> np.ndarray:
    return tensor.view(-1).view(torch.uint8).numpy()
