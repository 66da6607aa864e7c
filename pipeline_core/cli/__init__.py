"""The command line: one command per stage, and commands to set up and check a run."""

import os
import sys
from typing import Final

from pipeline_core.cli.app import app

# torch and numba bring an OpenMP runtime each. Threads of the one that spin for long while they
# wait take the cores from the other, but to wake one that sleeps takes longer than many a kernel:
# GNU's may spin for some 30 µs (3,000 turns; 1,000 where there are more threads than cores), and
# LLVM's not at all. This must be set before either is loaded.
OPENMP: Final = {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "3000", "KMP_BLOCKTIME": "0"}
for _name, _value in OPENMP.items():
    os.environ.setdefault(_name, _value)


def main() -> None:
    """Run the command line; the console script `pipeline-core`."""
    try:
        app(prog_name="pipeline-core")
    finally:
        _forget_unwritten()


def _forget_unwritten() -> None:
    """Drop output that cannot be written: its flush at exit would change the exit status of 0."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:  # None if the shell has closed it
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


__all__ = ["OPENMP", "app", "main"]
