"""Worker processes: work in many pieces, done by all cores, its results in order."""

from __future__ import annotations

import os
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread
from types import TracebackType
from typing import Self, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def count_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def can_be_sent(value: object) -> bool:
    """Tell whether another process can be given a value: no function of a function, for example."""
    try:
        pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


class Workers:
    """Processes that do pieces of work, to be used as a context.

    Args:
        wanted: Whether there are to be any; without, and on one core, the caller does the work.

    Attributes:
        n_processes: How many work at once.
    """

    def __init__(self, *, wanted: bool) -> None:
        self.n_processes = count_cores() if wanted else 1
        self._pool = (
            ProcessPoolExecutor(self.n_processes, get_context("spawn"), _end_with_parent)
            if self.n_processes > 1
            else None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield `function(task)` of each task, in order, however many are done at once.

        Few results wait in memory: tasks are taken as results are.

        Args:
            function: One that can be pickled, as its tasks and results can.
            tasks: The pieces of work.
        """
        if self._pool is None:
            yield from map(function, tasks)
            return
        pending: deque[Future[Result]] = deque()
        for task in tasks:
            pending.append(self._pool.submit(function, task))
            if len(pending) > 2 * self.n_processes:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _end_with_parent() -> None:
    """Have this process end when its parent is killed: it would wait for work for ever."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()
