"""Snakemake in forks of one process that has imported it: importing takes longer than planning."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

TIME_LIMIT = 1200  # seconds: only what hangs takes as long, on however busy a machine


def run_snakemake(folder: Path, words: Sequence[str], environment: dict[str, str]) -> int:
    """Run Snakemake in a folder; write what it says to `snakemake.log` there.

    Args:
        folder: Where it runs.
        words: Arguments.
        environment: All variables.

    Returns:
        The exit status.
    """
    server = _start_server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps([str(folder), list(words), environment]) + "\n")
    server.stdin.flush()
    return int(server.stdout.readline())


@cache
def _start_server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(server.communicate)  # ends it
    return server


def _serve() -> None:
    from snakemake import cli

    import pipeline_core.workflow  # noqa: F401
    from pipeline_core.builtin import load_registry

    load_registry()
    cli.get_argument_parser()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _become(*json.loads(line))
            cli.main()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _become(folder: str, words: list[str], environment: dict[str, str]) -> None:
    """Make this process as a new one would be."""
    signal.alarm(TIME_LIMIT)
    os.chdir(folder)
    log = os.open("snakemake.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream, source in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
        os.dup2(source, stream)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = environment["PYTHONPATH"].split(os.pathsep)
    sys.argv = ["snakemake", *words]


if __name__ == "__main__":
    _serve()
