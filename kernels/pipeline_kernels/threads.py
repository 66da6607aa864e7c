"""How many threads a numba kernel may use: as many as torch, as far as the work repays them."""

import numba
import torch

GRAIN_SIZE = 32_768  # elements per thread below which starting it costs more than it saves


def choose_threads(n_elements: int) -> int:
    """Choose the number of threads for a kernel and set numba to it.

    A caller that gets 1 must run the plain body instead of the parallel driver: entering numba's
    thread pool costs time, and GNU OpenMP ends a forked process (a data loader's worker, where
    torch has one thread) that enters the pool of its parent.

    Args:
        n_elements: number of elements that the kernel reads or writes.

    Returns:
        The number of threads, at least 1, at most `torch.get_num_threads()`.
    """
    limit = min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)
    n: int = max(1, min(limit, n_elements // GRAIN_SIZE))
    if n > 1:
        numba.set_num_threads(n)
    return n
