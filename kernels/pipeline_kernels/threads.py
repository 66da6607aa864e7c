"""Threads of a kernel: up to the number of torch's threads, as many as the work justifies.

Routines in C run on the thread pool of thread_pool.c (`native.call_routine`); long loops of numba
that share pieces by a counter of Python run on `run_in_threads`.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch

MAX_RANGES = 16  # of which each has sums as large as all parameters
GRAIN_SIZE = 32_768  # elements per thread below which starting it costs more than it saves


def choose_threads(n_elements: int) -> int:
    """Choose the number of threads for a kernel.

    Args:
        n_elements: number of elements that the kernel reads or writes.

    Returns:
        The number of threads, at least 1, at most `torch.get_num_threads()`.
    """
    return max(1, min(torch.get_num_threads(), n_elements // GRAIN_SIZE))


def count_ranges(n: int, least: int) -> int:
    """Choose the number of ranges, with sums of their own, whatever the number of threads.

    Args:
        n: number of things that are cut into ranges.
        least: fewest things of a range, unless there are fewer in all.
    """
    return max(1, min(MAX_RANGES, n // least))


def run_in_threads(work: Callable[[], None], n_threads: int) -> None:
    """Run `work` in `n_threads` threads at once, one of them the caller's.

    Each call takes its pieces from a shared counter until none is left: a thread that starts late
    then finds nothing to do, and calls that have not started when the caller has finished are
    cancelled. Routines in C have workers that start sooner: `native.call_routine`.

    Args:
        work: calls numba without the interpreter's lock and returns when no piece is left.
        n_threads: number of threads.
    """
    if n_threads == 1:
        work()
        return
    workers = [_make_pool(os.getpid()).submit(work) for _ in range(n_threads - 1)]
    try:
        work()
    finally:
        running = [worker for worker in workers if not worker.cancel()]
        for worker in running:
            worker.exception()  # waits
    for worker in running:
        worker.result()


@cache
def _make_pool(process: int) -> ThreadPoolExecutor:
    """Threads of this process: a forked one (a data loader's worker) inherits none."""
    return ThreadPoolExecutor(os.cpu_count(), f"pipeline_kernels-{process}")
