"""The experiment `smoke` of each plugin, all stages and variants, from raw data to figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline_core.builtin import load_registry
from pipeline_core.project import Project
from pipeline_core.testing.projects import call

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / "workflows"
NAMES = sorted(
    f"{path.parent.name}/{path.stem}" for path in (WORKFLOWS / "experiments").glob("*/smoke.yaml")
)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_smoke(name, tmp_path):
    project = Project(WORKFLOWS, tmp_path, load_registry())
    experiment = project.load_experiment(name)
    first = next(iter(experiment.runs.values()))
    if first.dataset is not None:
        call(first, "data")
    for run in experiment.runs.values():
        for stage in ("graph", "partition", "train", "evaluate", "infer"):
            call(run, stage)
    summary = project.registry.select_hook("draw", experiment.model_info.name)(run=experiment)
    assert {"learning"} < set(summary["drawn"])
    index = json.loads((experiment.folder / "index.json").read_text())
    for entry in index:
        for file in entry["files"]:
            assert (experiment.folder / file).stat().st_size > 0
