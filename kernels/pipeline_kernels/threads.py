"""Threads of a kernel: as many as torch has, as far as the work repays them."""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch

GRAIN_SIZE = 32_768  # elements per thread below which starting it costs more than it saves


def choose_threads(n_elements: int) -> int:
    """Choose the number of threads for a kernel, and set numba to it where it is loaded.

    A caller that gets 1 must run the plain body instead of the parallel driver: entering numba's
    thread pool costs time, and GNU OpenMP ends a forked process (a data loader's worker, where
    torch has one thread) that enters the pool of its parent.

    Args:
        n_elements: number of elements that the kernel reads or writes.

    Returns:
        The number of threads, at least 1, at most `torch.get_num_threads()`.
    """
    # Whoever calls a loop of numba has imported it, which takes longer than many a stage.
    numba = sys.modules.get("numba")
    n: int = max(1, min(torch.get_num_threads(), n_elements // GRAIN_SIZE))
    if numba and n > 1:
        n = min(n, numba.config.NUMBA_NUM_THREADS)
        numba.set_num_threads(n)
    return n


def run_in_threads(work: Callable[[], None], n_threads: int) -> None:
    """Run `work` in so many threads at once, one of them the caller's.

    Each call has to take its pieces from a counter that all share, until none is left: a thread
    that starts late then finds nothing to do, and what has not started when the caller has finished
    is cancelled. Routines in C have threads that start sooner: `native.call_routine`.

    Args:
        work: calls numba without the interpreter's lock and returns when no piece is left.
        n_threads: number of threads.
    """
    if n_threads == 1:
        work()
        return
    helpers = [_make_pool(os.getpid()).submit(work) for _ in range(n_threads - 1)]
    try:
        work()
    finally:
        running = [helper for helper in helpers if not helper.cancel()]
        for helper in running:
            helper.exception()  # waits
    for helper in running:
        helper.result()


@cache
def _make_pool(process: int) -> ThreadPoolExecutor:
    """Threads of this process: a forked one (a data loader's worker) inherits none."""
    return ThreadPoolExecutor(os.cpu_count(), f"pipeline_kernels-{process}")
