"""Worker processes. Oracle: the same calls in this process."""

import itertools
import os
import time

import pytest

from pipeline_atoms.workers import Workers, can_be_sent
from pipeline_core.system.processes import is_alive
from processes import start

ORPHANS = """
import os, signal, time
from pipeline_atoms import workers

workers.count_cores = lambda: 2

if __name__ == "__main__":
    pool = workers.Workers(wanted=True)
    for line in pool.map(str, map(os.getpid().__add__, range(2))):
        pass
    print(*pool._pool._processes, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_results_come_in_order_and_tasks_are_taken_as_needed(monkeypatch):
    monkeypatch.setattr("pipeline_atoms.workers.count_cores", lambda: 2)
    taken = itertools.count()
    with Workers(wanted=True) as workers:
        results = workers.map(str, taken)
        assert [next(results) for _ in range(20)] == list(map(str, range(20)))
        assert next(taken) <= 20 + 2 * workers.n_processes


def test_without_processes_the_caller_works():
    with Workers(wanted=False) as workers:
        assert list(workers.map(lambda _: os.getpid(), "ab")) == [os.getpid()] * 2


def test_a_function_of_a_function_cannot_be_sent():
    assert can_be_sent(len)
    assert not can_be_sent(lambda: None)


@pytest.mark.slow
def test_workers_end_when_their_parent_is_killed(tmp_path):
    (tmp_path / "orphans.py").write_text(ORPHANS)
    pids = [int(word) for word in start([tmp_path / "orphans.py"]).stdout.split()]
    assert len(pids) == 2
    limit = time.monotonic() + 20
    while any(map(is_alive, pids)):
        assert time.monotonic() < limit
        time.sleep(0.05)
