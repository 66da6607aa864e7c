"""Processes that tests start: programs on several ranks, and the command line as users call it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path

import pytest

TIME_LIMIT = 900  # seconds
LAUNCHERS = ("PMI_", "SLURM_", "OMPI_")


def make_environment(**extra: str) -> dict[str, str]:
    """Return variables for a process: one thread, modules of the tests, no word of a launcher."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
    places = [str(Path(__file__).parent), *filter(None, [plain.get("PYTHONPATH")])]
    return plain | {"PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"} | extra


def mpiexec() -> str:
    """Return the mpiexec of the MPI that mpi4py uses: the one beside Python if there is one."""
    beside_python = Path(sys.executable).with_name("mpiexec")
    program = str(beside_python) if beside_python.exists() else shutil.which("mpiexec")
    if program is None:
        pytest.skip("no mpiexec")
    return program


def start(
    arguments: Sequence[object], n_ranks: int | None = None, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run Python to its end, and nothing of it beyond the time limit.

    Args:
        arguments: What Python is given.
        n_ranks: Number of processes for mpiexec to start; None for one without it.
        **extra: Variables of their environment.
    """
    launcher = [] if n_ranks is None else [mpiexec(), "-n", str(n_ranks)]
    with subprocess.Popen(
        [*launcher, sys.executable, *map(str, arguments)],
        env=make_environment(**extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=TIME_LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def finish(arguments: Sequence[object], n_ranks: int | None = None, **extra: str) -> str:
    """As `start`, for what has to succeed; return its output."""
    done = start(arguments, n_ranks, **extra)
    assert done.returncode == 0, done.stderr
    return done.stdout


def find_free_port() -> str:
    """Return a port of this machine at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def fork(work: Callable[[int], None], n_ranks: int) -> bool:
    """Call `work(rank)` in processes forked off this one, which has imported everything.

    Returns:
        Whether one has failed; the others are killed then, since they may wait for it.
    """
    import torch._dynamo  # noqa: F401 - as the first optimizer of each rank would, in two seconds

    process = get_context("fork").Process
    ranks = [process(target=work, args=(rank,)) for rank in range(n_ranks)]
    for rank in ranks:
        rank.start()
    waiting = ranks
    while waiting and not any(rank.exitcode for rank in ranks):
        wait([rank.sentinel for rank in waiting])
        waiting = [rank for rank in waiting if rank.is_alive()]
    for rank in waiting:
        rank.kill()
    return any(rank.exitcode for rank in ranks)
