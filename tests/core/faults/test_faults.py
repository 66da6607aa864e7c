"""Damages to all files of a run. Oracle: the file as it was before."""

import subprocess
import sys
import time

import pytest

from core.faults.injection import KINDS, inject, list_cases
from core.faults.subjects import NAME, finish_run, list_subjects, make_project
from pipeline_core.artifacts import seals, store
from pipeline_core.artifacts.seals import SealedFile
from pipeline_core.project import lineage
from pipeline_core.testing.projects import call
from tiers import exhaustive, run_first

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two finished runs."""
    folder = tmp_path_factory.mktemp("faults")
    return [finish_run(make_project(folder / str(seed), seed=seed)) for seed in range(2)]


@pytest.mark.parametrize("flips", run_first([4, 100]))
def test_each_fault_is_noticed_or_without_effect(runs, flips):
    bad = {}
    for case, *what in list_cases(*runs, flips):
        outcome = inject(*what)
        if any(outcome[kind] for kind in KINDS):
            bad[case] = dict(outcome)
    assert not bad


def test_all_files_of_a_run_are_damaged(runs):
    """But those that nothing is computed or drawn from."""
    subjects = {subject.path for subject in list_subjects(runs[0])}
    results = runs[0].dataset.folder.parents[1]
    files = {path for path in results.rglob("*") if path.is_file()}
    assert {path.name for path in files - subjects} <= {"short.extxyz"}


CHECKS = (
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

    seconds, _depth = 0.0, 0

    def wrap(self, work):
        def timed(*arguments, **options):
            begin, self._depth = time.perf_counter(), self._depth + 1
            try:
                return work(*arguments, **options)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.perf_counter() - begin

        return timed


@exhaustive
def test_checks_take_little_of_a_stage(tmp_path, monkeypatch):
    """A tiny network, which is the worst case, and a process a stage, whose start counts."""
    clock, start, shares = Clock(), time.perf_counter(), {}
    code = "import torch; from pipeline_core.stages.builtin import load_registry; load_registry()"
    subprocess.run([sys.executable, "-c", code], check=True)
    start = time.perf_counter() - start
    for place, name in CHECKS:
        monkeypatch.setattr(place, name, clock.wrap(getattr(place, name)))

    def measure(stage, work, *arguments, **options):
        clock.seconds, begin = 0.0, time.perf_counter()
        work(*arguments, **options)
        shares[stage] = clock.seconds / (start + time.perf_counter() - begin)

    project = make_project(tmp_path, 500)
    run = finish_run(project, lambda run, stage: measure(stage, call, run, stage))
    draw = run.registry.select_hook("draw", run.model_info.name)
    measure("figures", draw, run=project.load_experiment(NAME))
    assert len(shares) == 7
    assert max(shares.values()) < 0.02
