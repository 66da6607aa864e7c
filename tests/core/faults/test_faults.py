"""Damages to all files of a run. Oracle: the file as it was before."""

from __future__ import annotations

import pytest

from core.faults.costs import measure_shares
from core.faults.injection import KINDS, inject, list_cases
from core.faults.subjects import finish_run, list_subjects, make_project
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


def test_a_stage_that_reads_a_damaged_file_says_so(runs):
    run = runs[0]
    whole = run.graph.read_bytes()
    run.graph.unlink()
    run.graph.mkdir()
    try:
        with pytest.raises(ValueError, match=rf"{run.graph}: cannot be read \(Is a directory\)"):
            call(run, "partition")
    finally:
        run.graph.rmdir()
        run.graph.write_bytes(whole)


@exhaustive
def test_checks_take_little_of_a_stage(tmp_path):
    """A tiny network, which is the worst case, and a process a stage, whose start counts."""
    shares = measure_shares(make_project(tmp_path, 500))
    assert max(shares.values()) < 0.02
