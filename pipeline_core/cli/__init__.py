"""The command line: one command a stage, and what helps to set up and to check a run."""

import os

from pipeline_core.cli.app import app

# torch and numba bring an OpenMP runtime each. Threads of the one that spin while they wait take
# the cores from the other; this has to be said before either is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def main() -> None:
    """Run the command line; the console script `pipeline-core`."""
    app(prog_name="pipeline-core")


__all__ = ["app", "main"]
