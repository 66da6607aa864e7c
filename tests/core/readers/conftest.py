"""Where the real data are, and a small water molecule that all formats can hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

PROJECT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def shared() -> Callable[[str], Path]:
    """Return a path below the folder of real data, or skip."""

    def find(name: str) -> Path:
        path = PROJECT.parent / "shared" / "data" / name
        if not path.exists():
            pytest.skip(f"needs the real data ../shared/data/{name}")
        return path

    return find


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
