"""Ranks in forks of one process that has imported the engine: importing takes longer than training.

They find each other as ranks of torchrun do. What mpiexec starts is tested in
`core/distributed/test_many_ranks.py`.
"""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from forked_programs import start_programs
from processes import find_free_port, make_environment


def run_on_ranks(
    module: str, arguments: Sequence[object], n_ranks: int, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run a module as a program in several processes to its end; the first that fails ends all.

    Args:
        module: Its name.
        arguments: Of the program.
        n_ranks: Number of processes.
        **extra: Variables of their environment.
    """
    words = [str(start_programs() / "forked-python"), "-m", module, *map(str, arguments)]
    shared = {**extra, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": find_free_port()}
    shared |= {"WORLD_SIZE": str(n_ranks), "GLOO_SOCKET_IFNAME": "lo"}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        files = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": errors}
        status = _wait(
            [
                subprocess.Popen(words, env=make_environment(RANK=str(rank), **shared), **files)
                for rank in range(n_ranks)
            ]
        )
        for file in (output, errors):
            file.seek(0)
        return subprocess.CompletedProcess(words, status, output.read(), errors.read())


def _wait(ranks: list[subprocess.Popen[bytes]]) -> int:
    """Return 0, or 1 if one has failed: others, which may wait for it, are killed then."""
    waiting = ranks
    while waiting and not any(rank.returncode for rank in ranks):
        time.sleep(0.01)
        waiting = [rank for rank in waiting if rank.poll() is None]
    for rank in waiting:
        rank.send_signal(signal.SIGHUP)  # it waits until its fork has ended, and writes no more
        rank.wait()
    return int(any(rank.returncode for rank in ranks))


def train_by_command(folder: Path, experiment: str, n_ranks: int, variant: str = "base") -> None:
    """Train by the command line on several ranks, in a folder with workflows and results."""
    stage = ["train", "--experiment", experiment, "--variant", variant, "--device", "cpu"]
    places = ["--workflows", folder / "workflows", "--results", folder / "results"]
    done = run_on_ranks("pipeline_core.cli", [*stage, *places], n_ranks)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^ranks +{n_ranks}$", done.stdout, re.MULTILINE)
