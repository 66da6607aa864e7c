"""Make the archive of one version: `python tests/plugins/older/make.py FOLDER`.

Run it with the code of a version whose files the next one cannot read any more, before that next
one is made, and keep `chgnet.tar.xz` of FOLDER beside this file, or under another name if the one
that is there is still to be read. It holds a project whose training has gone two epochs, with the
predictions of its model, and the history of the same training carried on to four.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.io import write

from pipeline_core.project.project import Project
from pipeline_core.stages.builtin import load_registry

EPOCHS = 2
DATASET = {
    "description": "Alloys",
    "sources": [{"path": "alloys.extxyz"}],
    "split": {"val": 0.25, "test": 0.25},
}
EXPERIMENT: dict[str, Any] = {
    "description": "A model",
    "plugin": "chgnet",
    "dataset": "data",
    "scale": "smoke",
    "model": {
        "atom_features": 4, "bond_features": 4, "angle_features": 4, "hidden_features": 4,
        "readout_features": [4], "radial_functions": 5, "angular_functions": 5,
        "convolutions": 2,
    },
    "graph": {"cutoff": 3.0, "angle_cutoff": 2.6},
    "train": {
        "batch_size": 2, "precision": "64-true", "ema_decay": 0.9,
        "loss": {"energy": {}, "forces": {}, "stress": {"unit": "GPa"}},
    },
}  # fmt: skip


def write_alloys(folder: Path) -> None:
    """Write strained and rattled cells of two or four atoms, with labels."""
    random = np.random.default_rng(0)
    structures: list[Atoms] = []
    for _ in range(8):
        atoms = bulk("Cu", "fcc", a=3.9, cubic=True)
        atoms.symbols = random.choice(["Cu", "Ag"], size=len(atoms))
        atoms.set_cell(atoms.cell[:] @ (np.eye(3) + random.uniform(-0.04, 0.04, (3, 3))), True)
        atoms.positions += random.normal(0, 0.08, atoms.positions.shape)
        atoms.calc = EMT()
        atoms.get_stress()
        structures.append(atoms)
    write(folder / "alloys.extxyz", structures)


def run_stages(folder: Path, epochs: int, *stages: str) -> Any:
    """Run stages of the experiment in a folder; return the run."""
    content = {**EXPERIMENT, "train": {**EXPERIMENT["train"], "epochs": epochs}}
    path = folder / "workflows/experiments/older.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    registry = load_registry()
    run = Project(folder / "workflows", folder / "results", registry).run("older")
    for stage in stages:
        registry.select_hook(stage, "chgnet")(run=run.dataset if stage == "data" else run)
    return run


def make_files(folder: Path) -> None:
    """Make the project."""
    datasets = folder / "workflows/datasets"
    datasets.mkdir(parents=True)
    write_alloys(datasets)
    (datasets / "data.yaml").write_text(yaml.safe_dump(DATASET))
    run_stages(folder, EPOCHS, "data", "graph", "partition", "train", "evaluate")
    longer = folder.with_name("longer")
    shutil.copytree(folder, longer)
    run = run_stages(longer, 2 * EPOCHS, "train")
    (folder / "longer.jsonl").write_text(run.history.read_text())
    shutil.rmtree(longer)


if __name__ == "__main__":
    root = Path(sys.argv[1]) / "chgnet"
    make_files(root)
    with tarfile.open(root.with_suffix(".tar.xz"), "w:xz") as archive:
        archive.add(root, root.name)
