"""The experiment `smoke` of each plugin, all stages and variants, from raw data to figures.

Trainings have fewer epochs than their files ask for: what they learn is not what is tested.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline_core.builtin import load_registry
from pipeline_core.config.sections import TrainOptions
from pipeline_core.project import Project
from pipeline_core.report.collect import write_report
from pipeline_core.run import Run
from pipeline_core.testing.projects import call

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / "workflows"
NAMES = sorted(
    f"{path.parent.name}/{path.stem}" for path in (WORKFLOWS / "experiments").glob("*/smoke.yaml")
)
MOST_BYTES = 1_000_000
"""Of an experiment in a report: that of the demo, which has five, is to be sent by mail."""


def shorten(run: Run) -> Run:
    """Return the run with a quarter of the epochs that its file asks for, two at least."""
    train = run.get_section("train", TrainOptions)
    if "epochs" not in train.model_fields_set:
        return run
    train = train.model_copy(update={"epochs": max(2, train.epochs // 4)})
    return replace(run, sections={**run.sections, "train": train})


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_smoke(name, tmp_path):
    project = Project(WORKFLOWS, tmp_path, load_registry())
    experiment = project.load_experiment(name)
    runs = {variant: shorten(run) for variant, run in experiment.runs.items()}
    experiment = replace(experiment, runs=runs)
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
    report = tmp_path / "report.html"
    write_report(report, {name: experiment.folder})
    assert name in report.read_text()
    assert report.stat().st_size < MOST_BYTES
