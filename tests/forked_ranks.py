"""Ranks in forks of one process that has imported the engine: importing takes longer than training.

They find each other as ranks of torchrun do. What mpiexec starts is tested in
`core/distributed/test_many_ranks.py`.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from processes import TIME_LIMIT, find_free_port, fork, make_environment


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
    server, words = _start_server(), [module, *map(str, arguments)]
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        server.stdin.write(json.dumps([folder, words, n_ranks, extra]) + "\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        output, errors = (Path(folder, name).read_text() for name in ("output", "errors"))
    return subprocess.CompletedProcess(words, status, output, errors)


def train_by_command(folder: Path, experiment: str, n_ranks: int, variant: str = "base") -> None:
    """Train by the command line on several ranks, in a folder with workflows and results."""
    stage = ["train", "--experiment", experiment, "--variant", variant, "--device", "cpu"]
    places = ["--workflows", folder / "workflows", "--results", folder / "results"]
    done = run_on_ranks("pipeline_core.cli", [*stage, *places], n_ranks)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^ranks +{n_ranks}$", done.stdout, re.MULTILINE)


@cache
def _start_server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, __file__],
        env=make_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.communicate)  # ends it
    return server


def _serve() -> None:
    import pipeline_core.cli.app
    import pipeline_core.training.trainer  # noqa: F401
    from pipeline_core.stages.builtin import load_registry

    load_registry()
    gc.freeze()  # a collection in a rank would copy all that is imported
    for line in sys.stdin:
        folder, words, n_ranks, extra = json.loads(line)
        port = find_free_port()
        for name in ("output", "errors"):
            Path(folder, name).touch()
        variables = extra | {"WORLD_SIZE": str(n_ranks), "MASTER_PORT": port}
        print(int(fork(_Rank(folder, words, variables), n_ranks)), flush=True)


class _Rank:
    """What a process does that has just been forked."""

    def __init__(self, folder: str, words: list[str], variables: dict[str, str]) -> None:
        self._folder, self._words, self._variables = folder, words, variables

    def __call__(self, rank: int) -> None:
        signal.alarm(TIME_LIMIT)
        for stream, name in ((1, "output"), (2, "errors")):
            os.dup2(os.open(Path(self._folder, name), os.O_WRONLY | os.O_APPEND), stream)
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
        os.environ |= {"RANK": str(rank), **self._variables}
        sys.argv = self._words
        runpy.run_module(self._words[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve()
