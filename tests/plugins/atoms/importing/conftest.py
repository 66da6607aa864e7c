"""A project in a temporary folder, and alloys whose energies, forces and stress ASE's EMT gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ase.io
import numpy as np
import pytest
import yaml
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator

from fake_packages import ATOMS
from pipeline_core.project.project import Project
from pipeline_core.project.run import DatasetRun
from pipeline_core.stages.builtin import load_registry


def make_alloy(rng: np.random.Generator, strain: float = 0.01, rattle: float = 0.05) -> Atoms:
    """A strained and rattled cell of four atoms, Cu and Al in any order."""
    atoms = bulk("Cu", cubic=True, a=3.8)
    atoms.numbers[:] = rng.choice([13, 29], 4)
    deformation = np.eye(3) + rng.uniform(-strain, strain, (3, 3))
    atoms.set_cell(atoms.cell.array @ deformation, scale_atoms=True)
    atoms.positions += rng.normal(0, rattle, (4, 3))
    return label_atoms(atoms)


def label_atoms(atoms: Atoms) -> Atoms:
    """Return a copy that carries what EMT says of it, the stress as (3, 3), tension positive."""
    copy = atoms.copy()
    copy.calc = EMT()
    values = {
        "energy": copy.get_potential_energy(),
        "forces": copy.get_forces(),
        "stress": copy.get_stress(voigt=False),
    }
    copy.calc = SinglePointCalculator(copy, **values)
    return copy


def change_results(atoms: Atoms, **values: Any) -> Atoms:
    """Return a copy with other results; None leaves one out."""
    copy = atoms.copy()
    results = {k: v for k, v in (atoms.calc.results | values).items() if v is not None}
    copy.calc = SinglePointCalculator(copy, **results)
    return copy


@pytest.fixture(scope="session")
def alloys() -> list[Atoms]:
    """Sixty frames; many have the same atoms in the same order."""
    rng = np.random.default_rng(7)
    return [make_alloy(rng) for _ in range(60)]


class Workshop:
    """A project whose dataset files are written from dictionaries."""

    def __init__(self, folder: Path) -> None:
        self.datasets = folder / "workflows" / "datasets"
        self.datasets.mkdir(parents=True)
        self.registry = load_registry(points=[ATOMS], builtin=())
        self.project = Project(folder / "workflows", folder / "results", self.registry)

    def write(self, name: str, frames: list[Atoms], **options) -> Path:
        path = self.datasets / name
        path.parent.mkdir(parents=True, exist_ok=True)
        ase.io.write(path, frames, format="extxyz", **options)
        return path

    def dataset(self, **content) -> DatasetRun:
        content = {"description": "alloys", "sources": [{"path": "raw/*.xyz"}], **content}
        (self.datasets / "alloys.yaml").write_text(yaml.safe_dump(content))
        return self.project.load_dataset("alloys")

    def import_(self, **content) -> tuple[DatasetRun, dict]:
        run = self.dataset(**content)
        return run, self.registry.select_hook("data", None)(run=run)


@pytest.fixture
def workshop(tmp_path) -> Workshop:
    return Workshop(tmp_path)
