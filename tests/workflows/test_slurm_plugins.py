"""Each plugin by the profile `slurm`, trained on two nodes of two ranks each.

The oracle is the same by one process without Slurm, whose steps are the same.
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

from pipeline_core.builtin import load_registry
from pipeline_core.model_info import STAGES
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
TIMES = "seconds|time|cost|memory|provenance|speed"
# Sums over ranks are rounded otherwise.
EXACT = {"precision": "64-true"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A working folder with the datasets of this repository, and without any plugin of toys."""
    folder = tmp_path_factory.mktemp("plugins") / "project"
    toy.write_project(folder)
    shutil.rmtree(folder / "site")
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
    toy.snakemake(folder, *POLLING, *figures, **cluster, **SITE)
    return runs


@pytest.mark.parametrize("plugin", PLUGINS)
def test_two_nodes_train_what_one_process_does(computed, plugin):
    run, here = computed[plugin]
    content = load_model(run.model)
    assert json.loads(content["provenance"])["ranks"] == 4
    found, expected = content["weights"], load_model(here.model)["weights"]
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-7, atol=1e-9, msg=name)


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
        running = pool.submit(toy.snakemake, folder, *POLLING, goal, **cluster, **site)
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
