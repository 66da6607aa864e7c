"""Worker processes that share many pieces of work, with results in order."""

import os
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def can_be_sent(value: object) -> bool:
    """Return True if a value can be pickled for another process, unlike a local function."""
    try:
        pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


class Workers(ExitStack):
    """Processes that do pieces of work, to be used as a context.

    Args:
        wanted: True for worker processes; else, or on one core, the caller does the work.

    Attributes:
        n_processes: Number of processes that work at once.
    """

    def __init__(self, *, wanted: bool) -> None:
        super().__init__()
        self.n_processes = count_cores() if wanted else 1
        self._pool = (
            ProcessPoolExecutor(self.n_processes, get_context("spawn"), _end_with_parent)
            if self.n_processes > 1
            else None
        )
        if self._pool is not None:
            self.callback(self._pool.shutdown, cancel_futures=True)

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Yield `function(task)` of each task, in order, whatever the order of completion.

        Few results wait in memory: tasks are taken as results are.

        Args:
            function: A function that can be pickled, as its tasks and results can.
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
    """Make this process end when its parent is killed: it would wait for work for ever."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()
