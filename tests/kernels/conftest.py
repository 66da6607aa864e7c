"""What the tests of every kernel family need: chosen threads, and Triton without a GPU."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import get_context

import pytest
import torch

from pipeline_kernels import threads


@contextmanager
def _threads(n: int) -> Iterator[None]:
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "GRAIN_SIZE", 1)
        torch.set_num_threads(n)
        try:
            yield
        finally:
            torch.set_num_threads(before)


@pytest.fixture(scope="session")
def use_threads() -> Callable[[int], AbstractContextManager[None]]:
    """A context in which the kernels use so many threads however small their work is."""
    return _threads


@pytest.fixture(scope="session")
def interpreted() -> Iterator[Callable]:
    """Calls a function in a process of its own where Triton interprets kernels on CPU tensors.

    The choice is made when Triton is imported, so it cannot be made here.
    """
    pytest.importorskip("triton")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRITON_INTERPRET", "1")
            pool.submit(os.getpid).result()  # starts the process in this environment
        yield lambda function, *args: pool.submit(function, *args).result()
