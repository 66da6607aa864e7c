"""Collective operations of the ranks of a stage, and the device of each rank.

A hook that works on several ranks does so within `with connect_ranks(run.device, run.state) as
ranks:`, on one process, too; all ranks call the same operations in one order, and rank 0 writes.
"""

import os
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from pipeline_core.artifacts.provenance import hash_source, read_versions
from pipeline_core.distributed.rendezvous import init_process_group
from pipeline_core.distributed.threads import count_threads_per_rank
from pipeline_core.distributed.watch import Watch, explain
from pipeline_core.distributed.world import World, find_world

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """The ranks of a running stage, from the view of one of them.

    Attributes:
        world: The place of this process.
        device: Device of this rank.
        through_cpu: True if tensors on a GPU are summed on the CPU, since ranks share a GPU, which
            NCCL refuses.
        watch: Exchange of signs of life with the other ranks; None for a single rank.
    """

    world: World
    device: torch.device
    through_cpu: bool = False
    watch: Watch | None = field(default=None, compare=False, repr=False)

    @property
    def rank(self) -> int:
        """Number of this process."""
        return self.world.rank

    @property
    def size(self) -> int:
        """Number of processes."""
        return self.world.size

    @property
    def is_rank_zero(self) -> bool:
        """True on the rank that writes files and communicates with the user."""
        return self.rank == 0

    def report(self, word: str) -> None:
        """Report the status of this rank in a few words, for the message if it is lost."""
        if self.watch is not None:
            self.watch.report(word)

    def announce(self, word: str) -> AbstractContextManager[None]:
        """Report the status of this rank within a context for which others may wait long."""
        return nullcontext() if self.watch is None else self.watch.announce(word)

    def all_reduce_sum(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all ranks, in place, and return it."""
        self.start_all_reduce_sum(tensor)()
        return tensor

    def start_all_reduce_sum(self, tensor: Tensor) -> Callable[[], object]:
        """Start the all-reduce of a tensor: its sum over all ranks, in place.

        Returns:
            Function that waits for the end; until then the tensor must not change.
        """
        if self.size == 1:
            return lambda: None
        if not (tensor.is_cuda and self.through_cpu):
            work: dist.Work = dist.all_reduce(tensor, async_op=True)
            return work.wait
        total = tensor.cpu()
        work = dist.all_reduce(total, async_op=True)

        def finish() -> None:
            work.wait()
            tensor.copy_(total)

        return finish

    def all_reduce_or(self, tensor: Tensor) -> Tensor:
        """Replace integers on the CPU by their bitwise or over all ranks, in place (all-reduce)."""
        if self.size > 1:
            dist.all_reduce(tensor, op=dist.ReduceOp.BOR)
        return tensor

    def broadcast_tensors(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors on the CPU by those of rank 0, in place."""
        if self.size > 1:
            for tensor in tensors:
                sent = tensor.contiguous()  # required by gloo
                dist.broadcast(sent, src=0)
                tensor.copy_(sent)

    def broadcast(self, value: T) -> T:
        """Return the value of rank 0; any object that pickle can carry between processes."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def barrier(self) -> None:
        """Wait for all ranks, but not for unfinished work on a GPU."""
        self.all_reduce_sum(torch.zeros(1))

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks, in order; also makes them wait for each other."""
        if self.size == 1:
            return [value]
        values: list[T | None] = [None] * self.size
        dist.all_gather_object(values, value)
        return values  # type: ignore[return-value] # filled by the line above

    def require_same(self, facts: Mapping[str, str], cure: str) -> None:
        """Check that the facts behind a common result are the same on all ranks.

        Args:
            facts: Name to value, on this rank.
            cure: What to do where they differ.

        Raises:
            ValueError: Some differ from rank 0's; the message is the same on all ranks.
        """
        first = self.broadcast(dict(facts))
        other = [
            f"{name} {facts.get(name, 'absent')} instead of {first.get(name, 'absent')}"
            for name in sorted({*facts, *first})
            if facts.get(name) != first.get(name)
        ]
        for rank, (host, differences) in enumerate(self.gather((socket.gethostname(), other))):
            if differences:
                shown = "; ".join(differences[:3])
                raise ValueError(
                    f"rank {rank} on {host} has another run than rank 0: {shown}; {cure}"
                )

    def gather_on_zero(self, value: T) -> list[T]:
        """Return the values of all ranks, in order, on rank 0; an empty list on others."""
        if self.size == 1:
            return [value]
        values: list[T | None] | None = [None] * self.size if self.is_rank_zero else None
        dist.gather_object(value, values)
        return values or []  # type: ignore[return-value] # filled by the line above


@contextmanager
def connect_ranks(device: str, folder: Path) -> Iterator[Ranks]:
    """Find the ranks of this stage, connect them, and disconnect at the end.

    Ranks share the cores that several of them may use, unless OMP_NUM_THREADS is set.

    Args:
        device: "cpu", "cuda", or "auto" for a GPU where all ranks have one.
        folder: Folder that all ranks see, to exchange addresses if needed.

    Raises:
        ValueError: There is no GPU, the ranks do not find each other, or one of them is lost.
    """
    world, threads = find_world(), torch.get_num_threads()
    try:
        if world.size == 1:
            yield _start_work(_place_ranks(world, device))
        else:
            with _connect_group(world, folder) as watch:
                yield _start_work(replace(_place_ranks(world, device), watch=watch))
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _connect_group(world: World, folder: Path) -> Iterator[Watch]:
    """Open the process group and watch over it."""
    watch = Watch()
    try:
        address = init_process_group(world, folder)
        ranks = Ranks(world, torch.device("cpu"))
        watch.connect(world, address, ranks.broadcast)
        software = read_versions() | {"source of the engine": hash_source()}
        ranks.require_same(software, "give all nodes one environment, as on a shared file system")
        yield watch
    except BaseException as error:
        if loss := watch.leave(error):
            raise explain(loss) from error
        raise
    else:
        watch.leave(None)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _start_work(ranks: Ranks) -> Ranks:
    if ranks.device.type == "cuda":
        torch.cuda.set_device(ranks.device)
    return ranks


@dataclass(frozen=True)
class _Place:
    host: str
    gpus: tuple[str, ...]
    cores: frozenset[int]


def _place_ranks(world: World, wish: str) -> Ranks:
    gpus = [str(torch.cuda.get_device_properties(i).uuid) for i in range(torch.cuda.device_count())]
    own = _Place(socket.gethostname(), tuple(gpus), frozenset(os.sched_getaffinity(0)))
    places = Ranks(world, torch.device("cpu")).gather(own)
    if world.size > 1:
        sharing = sum((p.host, p.cores) == (own.host, own.cores) for p in places)
        threads = os.environ.get("OMP_NUM_THREADS", count_threads_per_rank(len(own.cores), sharing))
        # torch would follow MKL_NUM_THREADS, which Snakemake sets to all threads of the job.
        torch.set_num_threads(int(threads))
    if wish == "cuda" and not all(place.gpus for place in places):
        lacking = next(place.host for place in places if not place.gpus)
        raise ValueError(f"device 'cuda': no GPU is visible on {lacking}; use --device cpu")
    if wish == "cpu" or not all(place.gpus for place in places):
        return Ranks(world, torch.device("cpu"))
    numbers = [_find_gpu(places, rank) for rank in range(world.size)]
    used = Counter((p.host, p.gpus[n]) for p, n in zip(places, numbers, strict=True))
    return Ranks(world, torch.device("cuda", numbers[world.rank]), max(used.values()) > 1)


def _find_gpu(places: list[_Place], rank: int) -> int:
    local_rank = sum(place.host == places[rank].host for place in places[:rank])
    return local_rank % len(places[rank].gpus)
