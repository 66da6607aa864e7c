"""A training of each plugin on two nodes of two ranks each, sent by the profile `slurm`.

The oracle is the training by one process without Slurm, whose steps are the same.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import yaml

from pipeline_core.builtin import load_registry
from pipeline_core.project import Project
from pipeline_core.run import Run
from pipeline_core.testing.projects import call
from pipeline_core.training.checkpoint import load_model
from workflows import toy
from workflows.slurm_cluster import explain_missing, list_submissions, start_slurm_cluster
from workflows.test_slurm import POLLING

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.skipif(explain_missing() is not None, reason=str(explain_missing())),
]

PLUGINS = ("chgnet", "egnn_esp", "gauge_flows", "htfbr", "mace")
SITE = {
    "PIPELINE_NODES": "2",
    "PIPELINE_RANKS": "2",
    "PIPELINE_THREADS": "1",
    "PIPELINE_PARTITION": "debug",
}
# Sums over ranks are rounded otherwise.
EXACT = {"precision": "64-true"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A working folder with the datasets of this repository."""
    folder = tmp_path_factory.mktemp("plugins") / "project"
    toy.write_project(folder)
    shutil.rmtree(folder / "workflows/datasets")
    (folder / "workflows/datasets").symlink_to(toy.REPOSITORY / "workflows/datasets")
    return Project(folder / "workflows", folder / "results", load_registry())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Variables of a running cluster."""
    with start_slurm_cluster(tmp_path_factory.mktemp("slurm")) as variables:
        yield variables


def write_experiment(project: Project, plugin: str, name: str, train: dict[str, Any]) -> Run:
    """Write the experiment `smoke` of a plugin without variants, trained otherwise."""
    source = toy.REPOSITORY / f"workflows/experiments/{plugin}/smoke.yaml"
    content = yaml.safe_load(source.read_text()) | {"variants": {}}
    content["train"] |= train
    path = project.workflows / f"experiments/{plugin}/{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return project.run(f"{plugin}/{name}")


def train_here(run: Run) -> dict[str, torch.Tensor]:
    """Return the weights of a training by one process, of which nothing is left."""
    for stage in ("data", "graph", "partition", "train"):
        call(run, stage)
    weights: dict[str, torch.Tensor] = load_model(run.model)["weights"]
    for path in (run.model, run.history):
        path.unlink()
    shutil.rmtree(run.state, ignore_errors=True)
    return weights


@pytest.fixture(scope="module")
def trained(project, cluster) -> dict[str, tuple[Run, dict[str, torch.Tensor]]]:
    """Of each plugin the run by Slurm, and the weights of the same training here."""
    found = {}
    for plugin in PLUGINS:
        epochs = {} if plugin == "htfbr" else {"epochs": 2, **EXACT}  # its solver has none
        run = write_experiment(project, plugin, "tiny", epochs)
        found[plugin] = run, train_here(run)
    folder = project.workflows.parent
    models = [str(run.model.relative_to(folder)) for run, _ in found.values()]
    toy.snakemake(folder, *POLLING, *models, **cluster, **SITE)
    return found


@pytest.mark.parametrize("plugin", PLUGINS)
def test_two_nodes_train_what_one_process_does(trained, plugin):
    run, expected = trained[plugin]
    content = load_model(run.model)
    assert json.loads(content["provenance"])["ranks"] == 4
    found = content["weights"]
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-7, atol=1e-9, msg=name)


def test_a_training_ended_by_its_time_limit_goes_on_to_the_bits_of_one_that_was_not(
    project, cluster
):
    run = write_experiment(project, "mace", "limited", {"epochs": 8})
    expected = train_here(run)
    folder = project.workflows.parent
    site = {"PIPELINE_HOURS": "1", "PIPELINE_PARTITION": "debug"}
    before = len(list_submissions(cluster))
    with ThreadPoolExecutor(1) as pool:
        goal = str(run.model.relative_to(folder))
        running = pool.submit(toy.snakemake, folder, *POLLING, goal, **cluster, **site)
        while count_epochs(run) < 3 and not running.done():
            time.sleep(0.05)
        job = list_submissions(cluster)[before][0]
        for command in (
            # Stopped, it does not end before the shortest limit that Slurm has, a minute.
            ["scancel", "--signal=STOP", "--full", job],
            ["scontrol", "update", f"jobid={job}", "TimeLimit=1"],
        ):
            subprocess.run(command, env=os.environ | cluster, check=True)
        running.result()
    states = [state for _, state in list_submissions(cluster, "State")[before:]]
    assert states == ["TIMEOUT", "COMPLETED"]
    found = load_model(run.model)["weights"]
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def count_epochs(run: Run) -> int:
    """Return how many epochs of a training are recorded."""
    return len(run.history.read_text().splitlines()) if run.history.exists() else 0
