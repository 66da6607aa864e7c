"""A plugin with the Lennard-Jones potential, and a run of it with data, graphs and a trained model.

Run as a program it evaluates the run of a folder, so that tests can start ranks.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import ase.build
import numpy as np
import torch
import yaml
from ase import Atoms

from fake_packages import ATOMS
from pipeline_atoms.graphs import write_graphs
from pipeline_atoms.potential.task import build_potential_task
from pipeline_core import hookimpl
from pipeline_core.artifacts.samples import SampleWriter
from pipeline_core.config.sections import Section
from pipeline_core.fields import FIELDS, SPLITS
from pipeline_core.model_info import ModelInfo
from pipeline_core.project.project import Project
from pipeline_core.project.run import Run
from pipeline_core.stages.builtin import load_registry
from pipeline_core.task import Task, build_task
from pipeline_core.training.model_file import write_model
from plugins.atoms.lennard_jones import GRAPH, LennardJones, make_ase_lennard_jones

SCALE = 1.1
"""Of the trained model; the labels have 1."""
REFERENCES = {"Ar": -14_000.25, "Kr": -75_000.5}
"""Energies of the free atoms, eV."""


class ArgonOptions(Section):
    """Of the model."""

    scale: float = 1.0
    """Of the energy, before training."""
    predicts: tuple[str, ...] = ("energy", "forces", "stress")


@hookimpl
def model() -> ModelInfo:
    return ModelInfo(name="argon", summary="Pairs.", citation="none", options=ArgonOptions)


@hookimpl
def task(run: Run) -> Task:
    return build_potential_task(run, LennardJones(run.options.predicts, run.options.scale))


def make_structures(n: int = 12) -> list[Atoms]:
    """Return disordered crystals of 2 to 8 atoms of argon and krypton, in three groups."""
    rng = np.random.default_rng(5)
    frames = []
    for number in range(n):
        atoms = ase.build.bulk("Ar", "fcc", 5.3 + 0.03 * number, cubic=bool(number % 3))
        atoms = atoms.repeat((2, 1, 1))
        atoms.symbols[:: 1 + number % 2] = "Kr"
        atoms.rattle(0.15, rng=rng)
        atoms.info["group"] = ("cold", "warm", "hot")[number % 3]
        atoms.calc = make_ase_lennard_jones()
        frames.append(atoms)
    return frames


def label_atoms(atoms: Atoms) -> dict[str, np.ndarray]:
    """Return a sample whose labels are ASE's."""
    energy = atoms.get_potential_energy() + sum(REFERENCES[s] for s in atoms.symbols)
    return {
        "cell": np.array(atoms.cell),
        "pbc": atoms.pbc,
        "group": np.asarray(atoms.info["group"]),
        "atomic_numbers": atoms.numbers,
        "positions": atoms.positions,
        "energy": np.asarray(energy),
        "forces": atoms.get_forces(),
        "stress": atoms.get_stress(voigt=False),
    }


def list_splits(n: int) -> np.ndarray:
    """Return the split of each sample, train, val and test in turn."""
    return (np.arange(n) % len(SPLITS)).astype(np.int8)


def write_data(path: Path, atoms_list: list[Atoms], codes: np.ndarray) -> None:
    names = ("cell", "pbc", "group", "source", "atomic_numbers", "positions")
    fields = [FIELDS[name] for name in (*names, "energy", "forces", "stress")]
    with SampleWriter(path, "data", {}, fields) as writer:
        for number, atoms in enumerate(atoms_list):
            writer.add(label_atoms(atoms) | {"source": np.asarray(f"argon.xyz:{number}")})
        writer.add_column("split", codes)
        writer.attributes["labels"] = json.dumps(["energy", "forces", "stress"])
        writer.attributes["elements"] = json.dumps(["Ar", "Kr"])
        writer.attributes["reference_energies"] = json.dumps(REFERENCES)


def write_project(folder: Path, name: str, content: dict) -> None:
    """Write an experiment on crystals, and its dataset file."""
    for place, text in {
        f"experiments/{name}.yaml": yaml.safe_dump(content),
        "datasets/crystals.yaml": "description: d\nsources: [{path: argon.xyz}]\n",
    }.items():
        path = folder / "workflows" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def make_run(
    folder: Path,
    atoms_list: list[Atoms] | None = None,
    codes: np.ndarray | None = None,
    *,
    scale: float = SCALE,
    dtype: torch.dtype = torch.float32,
    **sections: dict,
) -> Run:
    """Write an experiment with all that its evaluation reads, and load it."""
    atoms_list = make_structures() if atoms_list is None else atoms_list
    codes = list_splits(len(atoms_list)) if codes is None else codes
    content = {
        "description": "Pairs.",
        "plugin": "argon",
        "dataset": "crystals",
        "graph": {"cutoff": GRAPH.cutoff},
        **sections,
    }
    write_project(folder, "lj", content)
    run = load_run(folder)
    write_data(run.data, atoms_list, codes)
    write_graphs(run.data, run.graph, GRAPH, {})
    built = build_task(run)
    built.module.to(dtype)
    weights = {**built.module.state_dict()}
    weights["scale"] = weights["scale"] * scale
    split = next(s for s in SPLITS if len(built.samples(s)))
    write_model(run, built, weights, (split, np.arange(1)), {})
    return run


def load_run(folder: Path) -> Run:
    """Load the run of a folder that `make_run` has filled."""
    points = [ATOMS, EntryPoint("argon", "plugins.atoms.argon", "pipeline_core")]
    project = Project(folder / "workflows", folder / "results", load_registry(points))
    return replace(project.run("lj"), device="cpu")


if __name__ == "__main__":
    run_of_rank = load_run(Path(sys.argv[1]))
    run_of_rank.registry.select_hook("evaluate", "argon")(run=run_of_rank)
