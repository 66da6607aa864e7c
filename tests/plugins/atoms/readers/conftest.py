"""A small water molecule that all formats can hold, and runs of CP2K."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.stress import voigt_6_to_full_3x3_stress

from pipeline_atoms.readers import Frame
from plugins.atoms.readers.cp2k_files import RUNS, unpack


def assert_same(frame, atoms):
    """Compare a frame with what ASE has read from the same file, or has written into it."""
    assert isinstance(frame, Frame), frame
    assert np.array_equal(frame.atomic_numbers, atoms.numbers)
    assert np.array_equal(frame.positions, atoms.positions)
    assert np.array_equal(frame.cell, atoms.cell)
    assert np.array_equal(frame.pbc, atoms.pbc)
    results = dict(atoms.calc.results) if atoms.calc else {}
    if "stress" in results:
        results["stress"] = voigt_6_to_full_3x3_stress(results["stress"])
    assert frame.labels.keys() == results.keys()
    for name, value in results.items():
        assert np.array_equal(frame.labels[name], value), name


@pytest.fixture
def water() -> Atoms:
    rng = np.random.default_rng(0)
    atoms = Atoms(
        "OH2", rng.normal(size=(3, 3)), cell=rng.normal(size=(3, 3)) + 9 * np.eye(3), pbc=True
    )
    atoms.info["config_type"] = "bulk water"
    stress, forces = rng.normal(size=6), rng.normal(size=(3, 3))
    atoms.calc = SinglePointCalculator(
        atoms, energy=-14.25, forces=forces, stress=stress, magmoms=np.array([0.1, -0.2, 0.3])
    )
    return atoms


@pytest.fixture
def cp2k_run(tmp_path):
    """Copies the files of a run, its output uncompressed; returns the output."""

    def copy(name):
        for path in RUNS.glob(f"{name}[-.]*"):
            if path.suffix != ".gz":
                shutil.copy(path, tmp_path)
        return unpack(RUNS / f"{name}.out.gz", tmp_path)

    return copy
