"""Small projects with datasets and experiments of `workflows`; for `htfbr_*.py`."""

import contextlib
import io
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pipeline_core.registry import Registry
from pipeline_core.run import Project, Run

WORKFLOWS = Path(__file__).parents[2] / "workflows"
PLUGIN = "htfbr"


def workflow(kind: str, name: str) -> dict[str, Any]:
    """Content of a file of `workflows`, kind `datasets` or `experiments/htfbr`."""
    content = yaml.safe_load((WORKFLOWS / kind / f"{name}.yaml").read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def make_project(
    folder: Path, dataset: Mapping[str, Any], experiment: Mapping[str, Any]
) -> Project:
    """Write a dataset `points` and an experiment `fit` with it."""
    contents = {"datasets/points": dataset, "experiments/fit": {**experiment, "dataset": "points"}}
    for name, content in contents.items():
        path = folder / "workflows" / f"{name}.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(yaml.safe_dump(dict(content)), encoding="utf-8")
    return Project(folder / "workflows", folder / "results", Registry())


def call(run: Run, stage: str) -> tuple[Mapping[str, Any], float]:
    """Run a stage; return its summary and the seconds that it took."""
    hook = run.project.registry.hook(stage, PLUGIN)
    begin = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):  # a line for each step of the training
        summary = hook(run=run.dataset if stage == "data" else run)
    return summary, time.perf_counter() - begin
