"""Ranks as threads of one process, with messages through queues."""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from typing import TypeVar

from torch import Tensor

from pipeline_kernels.halo import Transport

Result = TypeVar("Result")


class Mailbox:
    """A transport between threads.

    Args:
        rank: Rank of this thread.
        size: Number of threads.
        queues: Queue from each rank to each other rank.
    """

    def __init__(
        self, rank: int, size: int, queues: Mapping[tuple[int, int], Queue[Tensor]]
    ) -> None:
        self.rank, self.size, self.bytes_sent = rank, size, 0
        self._queues = queues
        self._awaited: dict[int, deque[list[Tensor]]] = defaultdict(deque)

    def start(
        self, sent: Mapping[int, Tensor], received: Mapping[int, Tensor]
    ) -> Callable[[], None]:
        """As `Transport.start`."""
        for peer, tensor in sent.items():
            assert tensor.numel()
            self.bytes_sent += tensor.nbytes
            self._queues[self.rank, peer].put(tensor.clone())
        arrivals: dict[int, list[Tensor]] = {peer: [] for peer in received}
        for peer, arrival in arrivals.items():
            self._awaited[peer].append(arrival)

        def wait() -> None:
            for peer, tensor in received.items():
                while not arrivals[peer]:  # messages arrive in the order of their starts
                    message = self._queues[peer, self.rank].get(timeout=60)
                    self._awaited[peer].popleft().append(message)
                (arrived,) = arrivals[peer]
                assert arrived.shape == tensor.shape
                tensor.copy_(arrived)

        return wait


def run_on_threads(n: int, call: Callable[[Transport], Result]) -> list[Result]:
    """Return `call(transport)` of each of n ranks."""
    queues: dict[tuple[int, int], Queue[Tensor]] = {
        (i, j): Queue() for i in range(n) for j in range(n)
    }
    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(call, [Mailbox(rank, n, queues) for rank in range(n)]))
