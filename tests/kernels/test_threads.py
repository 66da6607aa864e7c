"""Threads of kernels: as many as torch's, and they share the pieces."""

import subprocess
import sys
import threading
from itertools import count

import pytest

from pipeline_kernels.threads import GRAIN_SIZE, choose_threads, run_in_threads

FORK_AFTER_THREADS = """
import os, torch
from pipeline_kernels.message import Segments, segment_sum
torch.set_num_threads(2)
values, segments = torch.ones(4000, 64), Segments.of(torch.arange(4000) // 4, 1000)
segment_sum(values, segments)
child = os.fork()
if child == 0:
    torch.set_num_threads(1)
    os._exit(int(segment_sum(values, segments).sum().item() != 4000 * 64))
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_follows_torch(use_threads):
    for wanted in (1, 2, 10_000):
        with use_threads(wanted):
            assert choose_threads(1 << 40) == wanted


def test_small_work_stays_on_one_thread():
    assert choose_threads(0) == choose_threads(2 * GRAIN_SIZE - 1) == 1


@pytest.mark.slow
def test_a_forked_process_with_one_thread_can_run_kernels():
    """As the workers of `torch.utils.data.DataLoader` do after the parent has used its threads."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK_AFTER_THREADS], check=True)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_threads_share_the_pieces(n_threads):
    numbers, done, idents = count(), [], set()
    together = threading.Barrier(n_threads)

    def work():
        together.wait(10)
        idents.add(threading.get_ident())
        while (piece := next(numbers)) < 100:
            done.append(piece)

    run_in_threads(work, n_threads)
    assert sorted(done) == list(range(100))
    assert len(idents) == n_threads


def test_an_error_in_a_thread_is_raised():
    here = threading.get_ident()
    started = threading.Event()

    def work():
        if threading.get_ident() != here:
            started.set()
            raise ValueError("piece 3")
        assert started.wait(10)

    with pytest.raises(ValueError, match="piece 3"):
        run_in_threads(work, 2)
