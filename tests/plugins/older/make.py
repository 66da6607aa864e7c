"""Make the files of one version: `python tests/plugins/older/make.py FOLDER`.

Run it with the code of a version whose files the next one cannot read any more, before that next
one is made, and keep FOLDER beside this file under the number of the version. For each plugin it
holds a project whose training has gone two epochs, with the predictions of its model, and the
history of the same training carried on to four.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import yaml
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.io import write

from pipeline_core.project.project import Project
from pipeline_core.stages.builtin import load_registry

MATRICES = Path(__file__).parents[3] / "workflows/datasets/hfo2/matrices/cubic-0600K.h5"
EPOCHS = 2
_CLOSE = 2.4
TRAIN = {"epochs": EPOCHS, "batch_size": 2, "precision": "64-true", "ema_decay": 0.9}
LOSS = {"energy": {}, "forces": {}, "stress": {"unit": "GPa"}}
ALLOYS = {"description": "Alloys", "sources": [{"path": "alloys.extxyz"}]}
ALLOYS["split"] = {"val": 0.25, "test": 0.25}
PLUGINS: dict[str, dict[str, Any]] = {
    "chgnet": {
        "dataset": ALLOYS,
        "model": {
            "atom_features": 4, "bond_features": 4, "angle_features": 4, "hidden_features": 4,
            "readout_features": [4], "radial_functions": 5, "angular_functions": 5,
            "convolutions": 2,
        },
        "graph": {"cutoff": 3.0, "angle_cutoff": 2.6},
        "train": TRAIN | {"loss": LOSS},
    },
    "mace": {
        "dataset": ALLOYS,
        "model": {
            "channels": 2, "lmax": 2, "radial_functions": 4, "radial_features": [4],
            "readout_features": 4,
        },
        "graph": {"cutoff": 3.0},
        "partition": {"strategy": "mace_bins"},
        "train": TRAIN | {"loss": LOSS},
    },
    "egnn_esp": {
        "dataset": {
            "description": "Hafnia",
            "plugin": "egnn_esp",
            "sources": [
                {
                    "reader": "packed", "path": f"{split}.h5", "split": split,
                    "basis": {"Hf": [0, 0, 1, 2], "O": [0, 1]},
                }
                for split in ("train", "val", "test")
            ],
        },
        "model": {
            "channels": 2, "layers": 1, "heads": 1, "attention_channels": 2, "value_channels": 2,
            "hidden_channels": 2, "feed_forward_channels": 2, "radial_functions": 4,
        },
        "graph": {"cutoff": 2.4},
        "train": TRAIN | {"batch_size": 1},
        "evaluate": {"dense_orbitals": 1},
    },
    "gauge_flows": {
        "dataset": {
            "description": "SU(2) in two dimensions",
            "plugin": "gauge_flows",
            "lattice": {"extents": [4, 4], "n_colours": 2},
            "action": {"name": "wilson", "beta": 1.0},
            "generate": {"method": "heatbath", "n_configurations": 20},
            "split": {"val": 0.3, "test": 0.3},
        },
        "model": {"layers": {"bins": 2, "hidden": [4]}, "draws": {"train": 8, "val": 8}},
        "graph": {"masks": [{"mask": "direction"}]},
        "train": TRAIN | {"batch_size": 4},
        "evaluate": {"samples": 64, "resamples": 50, "cost": None},
    },
    "htfbr": {
        "dataset": {
            "description": "The surface of HONO",
            "plugin": "htfbr",
            "source": {"reader": "hono", "points": 80},
            "split": {"val": 0.2, "test": 0.2},
        },
        "model": {"rank": 2},
        "graph": {"degree": 2},
        "train": {"method": "resident", "epochs": EPOCHS, "precision": "64-true"},
        "evaluate": {"grid": False, "off_grid_points": 50},
    },
}  # fmt: skip
TRAINED = "chgnet"
"""The plugin whose archive has what continues a training; the others are evaluated."""


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


def write_matrices(folder: Path) -> None:
    """Write one frame for each split, the blocks of close atoms alone."""
    with h5py.File(MATRICES) as shipped:
        for split, name in zip(("train", "val", "test"), sorted(shipped), strict=False):
            with h5py.File(folder / f"{split}.h5", "w") as file:
                file.attrs.update(shipped.attrs)
                write_close_blocks(shipped[name], file.create_group(name))


def write_close_blocks(frame: h5py.Group, group: h5py.Group) -> None:
    """Write the blocks of a frame whose atoms are closer than `_CLOSE` Angstrom."""
    columns = {name: frame[name][:] for name in frame}
    (*shift, first, second), cell = columns["atom_pairs"].T, columns["cell"]
    positions = columns["positions"]
    between = positions[second] + np.transpose(shift) @ cell - positions[first]
    close = np.linalg.norm(between, axis=1) < _CLOSE
    values = np.repeat(close, np.prod(columns["chunk_shapes"], axis=1, dtype=np.int64))
    for name in ("atom_pairs", "chunk_shapes", "H_powers", "S_powers"):
        columns[name] = columns[name][close]
    for name in ("H", "S"):
        columns[name] = columns[name][values]
    for name, column in columns.items():
        group.create_dataset(name, data=column)


def write_experiment(folder: Path, plugin: str, epochs: int) -> None:
    """Write the experiment of a plugin."""
    content = {"description": "A model", "plugin": plugin, "dataset": "data", "scale": "smoke"}
    sections = {k: v for k, v in PLUGINS[plugin].items() if k != "dataset"}
    sections["train"] = {**sections["train"], "epochs": epochs}
    path = folder / "workflows/experiments/older.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({**content, **sections}))


def run_stages(folder: Path, plugin: str, epochs: int, *stages: str) -> Any:
    """Run stages of the experiment in a folder; return the run."""
    write_experiment(folder, plugin, epochs)
    registry = load_registry()
    run = Project(folder / "workflows", folder / "results", registry).run("older")
    for stage in stages:
        registry.select_hook(stage, plugin)(run=run.dataset if stage == "data" else run)
    return run


def make_files(folder: Path, plugin: str) -> None:
    """Make the project of a plugin."""
    datasets = folder / "workflows/datasets"
    datasets.mkdir(parents=True)
    if plugin in ("chgnet", "mace"):
        write_alloys(datasets)
    elif plugin == "egnn_esp":
        write_matrices(datasets)
    (datasets / "data.yaml").write_text(yaml.safe_dump(PLUGINS[plugin]["dataset"]))
    stages = ("data", "graph", "partition", "train", "evaluate")
    run_stages(folder, plugin, EPOCHS, *stages)
    longer = folder.with_name("longer")
    shutil.copytree(folder, longer)
    run = run_stages(longer, plugin, 2 * EPOCHS, "train")
    (folder / "longer.jsonl").write_text(run.history.read_text())
    shutil.rmtree(longer)
    of_training = () if plugin == TRAINED else ("state", "longer.jsonl")
    for pattern in (*of_training, "logs", "matrices", "records.jsonl", "*.lock", "datasets/*.h5"):
        for path in folder.rglob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    for name in sys.argv[2:] or PLUGINS:
        make_files(Path(sys.argv[1]) / name, name)
        print(json.dumps({name: sum(p.stat().st_size for p in Path(sys.argv[1]).rglob("*"))}))
