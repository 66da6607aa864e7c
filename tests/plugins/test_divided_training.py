"""Training of MACE and CHGNet by parts of structures, small and large ones in one epoch.

Oracle: the same training on one rank with whole structures.
"""

import json
import shutil

import pytest
import torch
import yaml
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.io import write

from forked_ranks import train_by_command
from pipeline_core.project.project import Project
from pipeline_core.stages.builtin import load_registry
from pipeline_core.testing.projects import call
from pipeline_core.training.model_file import load_model
from records import read_history
from tiers import run_first

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

SMALL = {f"{kind}_features": 6 for kind in ("atom", "bond", "angle", "hidden")}
MODELS = {
    "mace": {
        "model": {"channels": 4, "lmax": 2, "correlation": 2},
        "graph": {"cutoff": 3.6},
    },
    "chgnet": {
        "model": {**SMALL, "readout_features": [6]},
        "graph": {"cutoff": 3.6, "angle_cutoff": 2.9},
    },
}
LOSS = {name: {"kind": "mse"} for name in ("energy", "forces", "stress")}
TRAIN = {"epochs": 2, "batch_size": 2, "precision": "64-true", "loss": LOSS, "clip_norm": 10.0}
N_RANKS = (2, 4)


def write_frames(path):
    """Write cells of 4 and of 48 atoms, labelled by effective-medium theory."""
    frames = []
    for number in range(8):
        cell = bulk("Cu", "fcc", a=3.7, cubic=True)
        atoms = cell.repeat((6, 2, 1)) if number % 4 == 1 else cell
        atoms.rattle(0.1, seed=number)
        atoms.calc = EMT()
        atoms.get_potential_energy()
        atoms.get_stress()
        frames.append(atoms)
    write(path, frames)


@pytest.fixture(scope="module", params=run_first(MODELS))
def folder(request, tmp_path_factory):
    """A project whose variant `divided` has been trained on several ranks, and base on one."""
    path = tmp_path_factory.mktemp(request.param)
    datasets, experiments = path / "workflows/datasets", path / "workflows/experiments"
    for place in (datasets, experiments):
        place.mkdir(parents=True)
    write_frames(datasets / "cells.extxyz")
    dataset = {
        "description": "Copper",
        "sources": [{"path": "cells.extxyz"}],
        "split": {"val": 0.25},
    }
    (datasets / "cells.yaml").write_text(yaml.safe_dump(dataset))
    content = {"description": "Cells", "plugin": request.param, "dataset": "cells", "train": TRAIN}
    content |= MODELS[request.param] | {"variants": {"divided": {"partition": {"parts": "graph"}}}}
    (experiments / "cells.yaml").write_text(yaml.safe_dump(content))
    for stage in ("data", "graph", "partition", "train"):
        call(open_run(path, "base"), stage)
    call(open_run(path, "divided"), "partition")
    return path


def open_run(folder, variant, results="results"):
    project = Project(folder / "workflows", folder / results, load_registry())
    return project.run("cells", variant)


@pytest.mark.parametrize("n_ranks", run_first(N_RANKS))
def test_training_by_parts_is_training(folder, n_ranks, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    train_by_command(tmp_path, "cells", n_ranks, "divided")
    base, divided = open_run(tmp_path, "base"), open_run(tmp_path, "divided")
    ours, expected = read_history(divided), read_history(base)
    assert len(ours) == len(expected) == 2
    for line, other in zip(ours, expected, strict=True):
        for split in ("train", "val", "mae"):
            assert line[split] == pytest.approx(other[split], rel=1e-8), json.dumps(line)
    ours, expected = (load_model(one.model)["weights"] for one in (divided, base))
    for name, weight in expected.items():
        torch.testing.assert_close(ours[name], weight, rtol=1e-8, atol=1e-8)
