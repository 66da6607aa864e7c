"""The same workflow on a real Slurm with two nodes: ranks by srun, logs of failures, killed jobs.

Slurm itself is the oracle: it says on which node a rank runs, and ends jobs at their time limit.
Each plugin is trained on two nodes of two ranks each, and once more by one process without Slurm,
whose steps are the same.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import yaml

from pipeline_core.cli.slurm import examine_cluster
from pipeline_core.model_info import STAGES
from pipeline_core.project.project import Project
from pipeline_core.project.run import Run
from pipeline_core.stages.builtin import load_registry
from pipeline_core.testing.projects import call
from pipeline_core.training.model_file import load_model
from tiers import exhaustive
from trained_runs import PLUGINS
from workflows import toy
from workflows.slurm_cluster import explain_missing, list_submissions, start_slurm_cluster
from workflows.toy import snakemake

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.skipif(explain_missing() is not None, reason=str(explain_missing())),
]

# The states of jobs are asked for soon.
POLLING = (
    "--profile", "slurm", "--latency-wait", "5", "--slurm-init-seconds-before-status-checks", "1",
)  # fmt: skip
PARTITION = "results/toy/first/base/partition.h5"
MODEL = "results/toy/first/base/model.pt"
SITE = {
    "PIPELINE_NODES": "2",
    "PIPELINE_RANKS": "2",
    "PIPELINE_THREADS": "1",
    "PIPELINE_PARTITION": "debug",
}
TIMES = "seconds|time|cost|memory|provenance|speed"
# Sums over ranks are rounded otherwise.
EXACT = {"precision": "64-true"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Variables of a running cluster."""
    with start_slurm_cluster(tmp_path_factory.mktemp("slurm")) as variables:
        yield variables


@exhaustive
def test_training_runs_on_two_nodes_with_two_ranks_each(fresh, cluster):
    site = {"PIPELINE_NODES": "2", "PIPELINE_GPUS": "2", "PIPELINE_PARTITION": "debug"}
    snakemake(fresh, PARTITION)
    snakemake(fresh, *POLLING, MODEL, **cluster, **site)
    state = fresh / "results/toy/first/base/state"
    assert sorted(path.read_text() for path in state.glob("rank-*")) == [
        "0 of 4 on n0", "1 of 4 on n0", "2 of 4 on n1", "3 of 4 on n1"
    ]  # fmt: skip
    log = (fresh / "results/toy/first/base/logs/train.log").read_text()
    assert log.split() == ["epochs", "3"]  # rank 0 alone speaks


@exhaustive
def test_a_failed_job_shows_its_log(fresh, cluster):
    path = fresh / "workflows/experiments/toy/first.yaml"
    path.write_text(path.read_text().replace("width: 4", "width: 13"))
    snakemake(fresh, PARTITION)
    text = snakemake(fresh, *POLLING, "--retries", "0", MODEL, ok=False, **cluster)
    assert "thirteen neurons bring bad luck; take twelve" in text


@exhaustive
def test_the_steps_of_small_experiments_are_one_job(fresh, cluster):
    before = len(list_submissions(cluster))
    snakemake(fresh, *POLLING, **cluster)
    (job,) = list_submissions(cluster, "State", "AllocCPUS", "ReqMem", "Timelimit")[before:]
    # Both experiments have one dataset. 17 steps of ten minutes take turns.
    assert job[1:] == ["COMPLETED", "8", "8000M", "02:50:00"]
    assert len(list((fresh / "slurm_efficiency").glob("*.csv"))) == 1


@exhaustive
def test_doctor_finds_the_cluster_ready_and_says_what_to_change(fresh, cluster, monkeypatch):
    for name, value in {**cluster, "PIPELINE_GPUS": "9", "PIPELINE_GPU_PARTITION": "gpu"}.items():
        monkeypatch.setenv(name, value)
    findings = {f.name.strip(): f for f in examine_cluster(fresh / "results")}
    for name in ("controller", "accounting", "account", "partition", "job", "results", "Python"):
        assert findings[name].detail, findings[name].cure
    assert findings["GPUs"].cure == "4 GPUs a node, less than 9: export PIPELINE_GPUS=4"


def test_a_job_that_slurm_kills_is_sent_again_and_continues_where_it_was(fresh, cluster):
    path = fresh / "workflows/experiments/toy/first.yaml"
    slow = path.read_text().replace("width: 4", "width: 21").replace("epochs: 3", "epochs: 5")
    path.write_text(slow)  # a second an epoch
    snakemake(fresh, PARTITION)
    state = fresh / "results/toy/first/base/state"
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(snakemake, fresh, *POLLING, MODEL, **cluster)
        while not (state / "epoch-0").exists() and not running.done():
            time.sleep(0.05)
        # SIGTERM, then SIGKILL: the signals of a time limit, whose shortest is a minute.
        subprocess.run(["scancel", "--user=root"], env=os.environ | cluster, check=True)
        running.result()
    jobs = [(state / f"epoch-{epoch}").read_text() for epoch in range(5)]
    assert len(set(jobs)) == 2
    assert jobs == sorted(jobs, key=jobs.index)  # one after the other


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A working folder with the datasets of this repository, and without any plugin of toys."""
    folder = tmp_path_factory.mktemp("plugins") / "project"
    toy.write_project(folder)
    shutil.rmtree(folder / "site")
    shutil.rmtree(folder / "workflows/datasets")
    (folder / "workflows/datasets").symlink_to(toy.REPOSITORY / "workflows/datasets")
    return Project(folder / "workflows", folder / "results", load_registry())


def write_experiment(project: Project, plugin: str, name: str, train: dict[str, Any]) -> Run:
    """Write the experiment `smoke` of a plugin without variants, trained otherwise."""
    source = toy.REPOSITORY / f"workflows/experiments/{plugin}/smoke.yaml"
    content = yaml.safe_load(source.read_text()) | {"variants": {}}
    content["train"] |= train
    path = project.workflows / f"experiments/{plugin}/{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return project.run(f"{plugin}/{name}")


def compute_here(project: Project, name: str, *stages: str) -> Run:
    """Compute stages by one process into a folder beside that of the results; return the run."""
    found = replace(project, results=project.results.with_name("here")).run(name)
    for stage in stages:
        if found.has_stage(stage) and (stage != "data" or found.dataset is not None):
            call(found, stage)
    return found


@pytest.fixture(scope="module")
def computed(project, cluster) -> dict[str, tuple[Run, Run]]:
    """Of each plugin the run by Slurm, to its figures, and the same by one process here."""
    runs = {}
    for plugin in PLUGINS:
        epochs = {} if plugin == "htfbr" else {"epochs": 2, **EXACT}  # its solver has none
        run = write_experiment(project, plugin, "tiny", epochs)
        runs[plugin] = run, compute_here(project, run.experiment, *STAGES[:-2])
    folder = project.workflows.parent
    figures = [f"results/{run.experiment}/figures" for run, _ in runs.values()]
    snakemake(folder, *POLLING, *figures, **cluster, **SITE)
    return runs


@exhaustive
@pytest.mark.parametrize("plugin", PLUGINS)
def test_two_nodes_train_what_one_process_does(computed, plugin):
    run, here = computed[plugin]
    content = load_model(run.model)
    assert json.loads(content["provenance"])["ranks"] == 4
    found, expected = content["weights"], load_model(here.model)["weights"]
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-7, atol=1e-9, msg=name)


@exhaustive
@pytest.mark.parametrize("plugin", PLUGINS)
def test_all_other_artifacts_are_those_of_one_process(computed, plugin):
    run, here = computed[plugin]
    for name in ("graph", "partition"):
        if here.has_stage(name):
            found, expected = read_arrays(getattr(run, name)), read_arrays(getattr(here, name))
            assert found.keys() == expected.keys()
            assert all(np.array_equal(found[key], expected[key]) for key in expected)
    found, expected = dict(list_numbers(run.metrics)), dict(list_numbers(here.metrics))
    assert len(expected) > 3
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-7)
    if here.has_stage("infer"):
        shapes = [{k: a.shape for k, a in read_arrays(r.inference).items()} for r in (run, here)]
        assert shapes[0] == shapes[1]
    assert (run.folder.parent / "figures/index.json").exists()


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return all arrays of an artifact."""
    found: dict[str, np.ndarray] = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: found.update({name: item[()]}) if hasattr(item, "shape") else None
        )
    return found


def list_numbers(path: Path) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a JSON file that are no times, each with the way to it."""

    def walk(place: str, value: Any) -> Iterator[tuple[str, float]]:
        if isinstance(value, dict | list):
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            for key, inner in pairs:
                yield from walk(f"{place}/{key}", inner)
        elif isinstance(value, int | float) and not re.search(TIMES, place):
            yield place, value

    yield from walk("", json.loads(path.read_text()))


@exhaustive
def test_a_training_ended_by_its_time_limit_goes_on_to_the_bits_of_one_that_was_not(
    project, cluster
):
    run = write_experiment(project, "mace", "limited", {"epochs": 8})
    here = compute_here(project, run.experiment, "data", "graph", "partition", "train")
    expected = load_model(here.model)["weights"]
    folder = project.workflows.parent
    site = {"PIPELINE_HOURS": "1", "PIPELINE_PARTITION": "debug"}
    with ThreadPoolExecutor(1) as pool:
        goal = str(run.model.relative_to(folder))
        running = pool.submit(snakemake, folder, *POLLING, goal, **cluster, **site)
        while count_epochs(run) < 3 and not running.done():
            time.sleep(0.05)
        job = list_submissions(cluster)[-1][0]  # what comes before it has ended
        for command in (
            # Stopped, it does not end before the shortest limit that Slurm has, a minute.
            ["scancel", "--signal=STOP", "--full", job],
            ["scontrol", "update", f"jobid={job}", "TimeLimit=1"],
        ):
            subprocess.run(command, env=os.environ | cluster, check=True)
        running.result()
    states = [state for _, state in list_submissions(cluster, "State")]
    assert states[-3:] == ["COMPLETED", "TIMEOUT", "COMPLETED"]
    found = load_model(run.model)["weights"]
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def count_epochs(run: Run) -> int:
    """Return how many epochs of a training are recorded."""
    return len(run.history.read_text().splitlines()) if run.history.exists() else 0
