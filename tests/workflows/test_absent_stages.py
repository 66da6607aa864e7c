"""A model without some stages: the workflow leaves them out, and nothing is written for them."""

import re
import subprocess

import pytest

from forked_programs import start_programs
from workflows import toy

ABSENT = ("graph", "partition", "infer", "profile")


def leave_out_stages(folder):
    """Let the plugin `other` be one without the stages that a model can do without."""
    path = folder / "site/other_plugin.py"
    source = path.read_text().replace("options=Options)", f"options=Options, without={ABSENT})")
    for stage in ABSENT[:3]:
        source, n = re.subn(rf"@hookimpl\ndef {stage}\(run\):\n(    .*\n)+", "", source)
        assert n == 1
    path.write_text(source)
    (folder / "workflows/config.yaml").write_text("experiments: [other/first]\n")


def call(folder, *words):
    """Run a command in a project, where it has to fail; return what it says."""
    places = ["--workflows", folder / "workflows", "--results", folder / "results"]
    done = subprocess.run(
        [start_programs() / "pipeline-core", *words, *places],
        env=toy.make_environment(folder), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    return done.stderr


@pytest.mark.slow
def test_the_workflow_leaves_them_out(fresh):
    leave_out_stages(fresh)
    expected = {"all": 1, "data": 1, "train": 2, "evaluate": 2, "figures": 1}
    assert toy.plan_jobs(fresh) == expected
    toy.snakemake(fresh)
    assert toy.plan_jobs(fresh) == {}
    made = {path.name for path in (fresh / "results/other/first/base").glob("*.*")}
    assert made == {"model.pt", "history.jsonl", "metrics.json", "predictions.h5", "records.jsonl"}


@pytest.mark.slow
def test_by_hand_they_are_refused(fresh):
    leave_out_stages(fresh)
    said = call(fresh, "graph", "--experiment", "other/first")
    assert "other/first: the model 'other' has no stage 'graph'; leave it out" in said


@pytest.mark.slow
def test_their_sections_are_refused(fresh):
    leave_out_stages(fresh)
    path = fresh / "workflows/experiments/other/first.yaml"
    path.write_text(path.read_text() + "graph: {cutoff: 5.0}\n")
    said = call(fresh, "validate", "other/first")
    assert "first.yaml:8: graph: the model has no such stage; remove the section" in said
