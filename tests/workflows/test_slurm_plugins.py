"""A training of each plugin on two nodes of two ranks each, sent by the profile `slurm`.

The oracle is the training by one process without Slurm, whose steps are the same.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from pipeline_core.builtin import load_registry
from pipeline_core.project import Project
from pipeline_core.testing.projects import call
from pipeline_core.training.checkpoint import load_model
from workflows import toy
from workflows.slurm_cluster import explain_missing, start_slurm_cluster
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


def write_tiny(folder: Path, plugin: str) -> None:
    """Write the experiment `smoke` of a plugin with few epochs and no variants."""
    source = toy.REPOSITORY / f"workflows/experiments/{plugin}/smoke.yaml"
    content = yaml.safe_load(source.read_text()) | {"variants": {}}
    epochs = {} if plugin == "htfbr" else {"epochs": 2, **EXACT}  # its solver has none
    content["train"] |= epochs
    path = folder / f"workflows/experiments/{plugin}/tiny.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(content))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any]]:
    """Of each plugin the run by Slurm, and the weights of the same training here."""
    folder = tmp_path_factory.mktemp("plugins") / "project"
    toy.write_project(folder)
    shutil.rmtree(folder / "workflows/datasets")
    (folder / "workflows/datasets").symlink_to(toy.REPOSITORY / "workflows/datasets")
    project = Project(folder / "workflows", folder / "results", load_registry())
    runs, weights = {}, {}
    for plugin in PLUGINS:
        write_tiny(folder, plugin)
        runs[plugin] = run = project.run(f"{plugin}/tiny")
        for stage in ("data", "graph", "partition", "train"):
            call(run, stage)
        weights[plugin] = load_model(run.model)["weights"]
        for path in (run.model, run.history):
            path.unlink()
        shutil.rmtree(run.state, ignore_errors=True)
    models = [str(run.model.relative_to(folder)) for run in runs.values()]
    with start_slurm_cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        toy.snakemake(folder, *POLLING, *models, **cluster, **SITE)
    return {plugin: (runs[plugin], weights[plugin]) for plugin in PLUGINS}


@pytest.mark.parametrize("plugin", PLUGINS)
def test_two_nodes_train_what_one_process_does(trained, plugin):
    run, expected = trained[plugin]
    content = load_model(run.model)
    assert json.loads(content["provenance"])["ranks"] == 4
    found = content["weights"]
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-7, atol=1e-9, msg=name)
