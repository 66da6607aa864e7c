"""What it costs to check artifacts."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any
from unittest.mock import patch

from core.faults.subjects import NAME, STAGES, finish_run
from pipeline_core import lineage, seals, store
from pipeline_core.project import Project
from pipeline_core.seals import SealedFile
from pipeline_core.testing import projects

CHECKS: tuple[tuple[Any, str], ...] = (
    (lineage, "require_current"),
    (lineage, "require_current_results"),
    (SealedFile, "check_block"),
    (store, "read_seal"),
    (store, "write_seal"),
    (seals, "hash_file"),
)
"""What runs for the sake of checks alone, by its place."""


class Clock:
    """Time spent in checks; those within others do not count twice."""

    seconds = 0.0
    _depth = 0

    def wrap(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that is timed."""

        def timed(*arguments: Any, **options: Any) -> Any:
            begin, self._depth = time.perf_counter(), self._depth + 1
            try:
                return work(*arguments, **options)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.perf_counter() - begin

        return timed


@contextmanager
def time_checks() -> Iterator[Clock]:
    """Time all checks within the block."""
    clock = Clock()
    with ExitStack() as stack:
        for place, name in CHECKS:
            stack.enter_context(patch.object(place, name, clock.wrap(getattr(place, name))))
        yield clock


def measure_shares(project: Project) -> dict[str, float]:
    """Return the part of the time of each stage that checks take, of a run from the beginning.

    A stage is a process: its start, which loads torch and the plugins, is part of its time.
    """
    shares, start = {}, measure_start()

    def measure(stage: str, work: Callable[[], object]) -> None:
        with time_checks() as clock:
            begin = time.perf_counter()
            work()
            shares[stage] = round(clock.seconds / (start + time.perf_counter() - begin), 4)

    run = finish_run(project, lambda run, stage: measure(stage, lambda: projects.call(run, stage)))
    experiment = project.load_experiment(NAME)
    draw = run.registry.select_hook("draw", run.model_info.name)
    measure("figures", lambda: draw(run=experiment))
    assert shares.keys() == {*STAGES, "figures"}
    return shares


def measure_start() -> float:
    """Return the seconds in which a process of the engine starts, median of three."""
    code = "import torch; from pipeline_core.builtin import load_registry; load_registry()"
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append(time.perf_counter() - begin)
    return median(times)
