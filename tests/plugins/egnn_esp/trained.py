"""A small model of shipped frames, trained for a step, and runs that use it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import h5py
import yaml

from fake_packages import ATOMS
from pipeline_core.project.project import Project
from pipeline_core.project.run import ExperimentRun, Run
from pipeline_core.stages.builtin import load_registry
from pipeline_core.testing.projects import call
from pipeline_egnn_esp.inference.infer import infer_run
from pipeline_egnn_esp.inference.options import ESPInferOptions
from pipeline_egnn_esp.options import ESPEvaluateOptions
from plugins.egnn_esp import reference

NAME = "egnn_esp/small"
CUTOFF = 4.5
MODEL = {"channels": 3, "lmax": 4, "layers": 2, "radial_functions": 6}
MODEL |= {"attention_channels": 2, "value_channels": 3, "hidden_channels": 3}
MODEL |= {"feed_forward_channels": 4}
_STRUCTURES = [
    {
        "name": "cell",
        "density_of_states": {"width": 0.3},
        "bands": {"path": "XGY", "points": 9},
    },
    {"name": "tiled", "repeat": [2, 1, 1], "picture": 1000},
]
_LEVELS = {"k_points": (1, 1, 1), "electrons": {"Hf": 12, "O": 6}}
_SOURCES = {"train": "monoclinic-0600K", "val": "cubic-0600K", "test": "tetragonal-2000K"}


def write_project(folder: Path, frames=("000", "003"), **sections: Mapping[str, Any]) -> None:
    """Write frames for training, one for each other split, and an experiment with them."""
    datasets = folder / "workflows/datasets"
    experiments = folder / "workflows/experiments/egnn_esp"
    for path in (datasets, experiments):
        path.mkdir(parents=True)
    shipped = reference.ROOT / "workflows/datasets/hfo2/matrices"
    for split, name in _SOURCES.items():
        with (
            h5py.File(shipped / f"{name}.h5") as file,
            h5py.File(datasets / f"{split}.h5", "w") as one,
        ):
            for frame in frames if split == "train" else ["000"]:
                file.copy(frame, one)
            one.attrs.update(file.attrs)
    sources = [
        {"reader": "packed", "path": f"{split}.h5", "basis": reference.HAFNIA, "split": split}
        for split in _SOURCES
    ]
    data = {"description": "Frames.", "plugin": "egnn_esp", "sources": sources}
    (datasets / "frames.yaml").write_text(yaml.safe_dump(data))
    experiment = {
        "description": "A model.",
        "plugin": "egnn_esp",
        "dataset": "frames",
        "scale": "smoke",
        "model": MODEL,
        "graph": {"cutoff": CUTOFF},
        "train": {"epochs": 1, "precision": "64-true"},
    }
    for key, section in sections.items():
        experiment[key] = {**experiment.get(key, {}), **section}
    (experiments / "small.yaml").write_text(yaml.safe_dump(experiment))


def project(folder: Path, results: str = "results") -> Project:
    """Return the project in a folder."""
    point = EntryPoint("egnn_esp", "pipeline_egnn_esp.plugin", "pipeline_core")
    return Project(folder / "workflows", folder / results, load_registry([ATOMS, point]))


def open_run(folder: Path, infer: Mapping[str, Any] | None = None, results: str = "results") -> Run:
    """Return the run in a folder, with a section `infer`."""
    run = project(folder, results).run(NAME)
    options = ESPInferOptions.model_validate_json(json.dumps(infer or {}))
    return replace(run, sections={**run.sections, "infer": options}, device="cpu")


def prepare_run(folder: Path, frames=("000", "003"), **sections: Mapping[str, Any]) -> Run:
    """Write a project; return its run, whose data, graph and partition are there."""
    write_project(folder, frames, **sections)
    run = open_run(folder)
    for stage in ("data", "graph", "partition"):
        call(run, stage)
    return run


def train(folder: Path) -> Run:
    """Write project and model; return the run."""
    run = prepare_run(folder)
    call(run, "train")
    return run


def train_and_tile(folder: Path) -> ExperimentRun:
    """Return an experiment whose model was trained for a step and used for the second structure."""
    train(folder)
    run = open_run(folder, {"structures": _STRUCTURES[1:]})
    infer_run(run)
    return replace(project(folder).load_experiment(NAME), runs={"base": run})


def train_and_use(folder: Path) -> ExperimentRun:
    """Return an experiment whose model was trained for a step, evaluated and used."""
    train(folder)
    run = open_run(folder, {"structures": _STRUCTURES})
    section = ESPEvaluateOptions.model_validate(_LEVELS)
    run = replace(run, sections={**run.sections, "evaluate": section})
    call(run, "evaluate")
    infer_run(run)
    return replace(project(folder).load_experiment(NAME), runs={"base": run})
