"""Small projects whose points are given, so that no data stage has to make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pipeline_core.project.project import Project
from pipeline_core.project.run import DatasetRun, Run
from pipeline_core.stages.builtin import load_registry
from pipeline_htfbr.data.points import Coordinate, Points, write_points
from plugins.htfbr import made_up
from plugins.htfbr.fits import SECTIONS, evaluate_polynomial, slopes

DATASET = {
    "description": "Points of a function.",
    "plugin": "htfbr",
    "source": {
        "reader": "points",
        "path": "points.csv",
        "coordinates": [{"name": "x", "unit": "1"}],
        "energy": {"unit": "eV"},
    },
}
"""What the file must say; the data stage that would heed it is not run."""


def make_project(
    folder: Path, points: Points, sections: Mapping[str, Any] | None = None, name: str = "points"
) -> Run:
    """Write points and an experiment with them into a folder; make graph and partition.

    Args:
        folder: For `workflows` and `results`.
        points: The data.
        sections: Of the experiment file: `seed`, `model`, `graph`, `train`, `variants`, ...
        name: Of the dataset and of the experiment.

    Returns:
        The base variant of the experiment.
    """
    content = {"description": "A fit.", "plugin": "htfbr", "dataset": name, **(sections or {})}
    for kind, text in (("datasets", DATASET), ("experiments", content)):
        path = folder / "workflows" / kind / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(text))
    project = Project(folder / "workflows", folder / "results", load_registry())
    run = project.run(name)
    write_points(run.data, points, {"made": "by a test"})
    for stage in ("graph", "partition"):
        for variant in project.load_experiment(name).runs.values():
            project.registry.select_hook(stage, "htfbr")(run=variant)
    return run


@pytest.fixture
def dataset(tmp_path) -> Callable[..., DatasetRun]:
    """Write a dataset file, `set.yaml`; return its run."""

    def make(source: dict[str, Any], **more: Any) -> DatasetRun:
        content = {"description": "Points.", "plugin": "htfbr", "source": source, **more}
        path = tmp_path / "workflows/datasets/set.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        project = Project(tmp_path / "workflows", tmp_path / "results", load_registry())
        return project.load_dataset("set")

    return make


@pytest.fixture(scope="session")
def project() -> Callable[..., Run]:
    return make_project


def make_points(
    function: Callable[..., np.ndarray],
    n: int = 300,
    *,
    d: int = 3,
    gradient: Callable[..., np.ndarray] | None = None,
    domain: tuple[float, float] = (-1.0, 1.0),
    seed: int = 0,
) -> Points:
    """Return random points and a function of them.

    Args:
        function: From x (n, d) to energies (n,) eV.
        n: Points: two thirds for training, a sixth each for validation and test.
        d: Coordinates.
        gradient: From x to (n, d); None for points without gradients.
        domain: Of every coordinate.
        seed: Of the points.
    """
    lower, upper = domain
    x = np.random.default_rng(seed).uniform(lower, upper, (n, d))
    place = np.arange(n) * 6 // n
    return Points(
        coordinates=tuple(
            Coordinate(name=f"x{mu}", unit="1", lower=lower, upper=upper) for mu in range(d)
        ),
        x=x,
        energy=function(x),
        gradient=None if gradient is None else gradient(x),
        group=np.array(["points"] * n, dtype=object),
        split=np.maximum(place - 3, 0).astype(np.int8),
    )


@pytest.fixture(scope="session")
def points() -> Callable[..., Points]:
    return make_points


@pytest.fixture
def fit(tmp_path):
    """Make a run whose training differs from the usual one in some options."""

    def make(
        train=None,
        folder="run",
        function=evaluate_polynomial,
        n=120,
        gradient=slopes,
        domain=(-1.0, 1.0),
        **sections,
    ):
        content = SECTIONS | sections | {"train": SECTIONS["train"] | (train or {})}
        data = make_points(function, n, gradient=gradient, domain=domain)
        return replace(make_project(tmp_path / folder, data, content), device="cpu")

    return make


@pytest.fixture
def hono(tmp_path):
    return made_up.write(tmp_path, "htfbr/hono", "hono")


@pytest.fixture
def ethene(tmp_path):
    return made_up.write(tmp_path, "htfbr/ethene", "ethene_xtb")
