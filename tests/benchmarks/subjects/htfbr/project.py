"""Small projects with datasets and experiments of `workflows`; for `htfbr_*.py`."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from pipeline_core.project.project import Project
from pipeline_core.project.run import Run
from pipeline_core.stages.builtin import load_registry

WORKFLOWS = Path(__file__).parents[4] / "workflows"
PLUGIN = "htfbr"
THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def read_workflow(kind: str, name: str) -> dict[str, Any]:
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
    return Project(folder / "workflows", folder / "results", load_registry())


def call(run: Run, stage: str) -> tuple[Mapping[str, Any], float]:
    """Run a stage; return its summary and the seconds that it took."""
    hook = run.registry.select_hook(stage, PLUGIN)
    begin = time.perf_counter()
    with limit_threads_of_children(1) if stage == "data" else contextlib.nullcontext():
        summary = hook(run=run.dataset if stage == "data" else run)
    return summary, time.perf_counter() - begin


@contextlib.contextmanager
def limit_threads_of_children(threads: int) -> Iterator[None]:
    """Let processes that are started within the block have so many threads.

    Their libraries read it when they are loaded: with the main module, so before any initializer.
    """
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
