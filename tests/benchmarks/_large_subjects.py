"""What is measured of a large structure on all sides alike: a calculator and its crystals."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from _mace_subjects import Arrays, read_structures
from ase import Atoms
from ase.calculators.calculator import Calculator
from ase.stress import voigt_6_to_full_3x3_stress


class Crystals(ABC):
    """A small crystal, which warms a calculator up and is compared, and a large one.

    Args:
        arrays: Numbers, positions and cells of both, one after the other.
    """

    def __init__(self, arrays: Arrays) -> None:
        self.small, self.large = read_structures(arrays)
        self.calls = {"warm": lambda: self.predict(self.small), "step": self.step}

    @abstractmethod
    def predict(self, atoms: Atoms) -> dict[str, Any]:
        """Return energy an atom (eV), forces (eV/Å) and stress (3 x 3, eV/Å³), neighbours and all,
        as of a structure that was never seen before."""

    def step(self) -> None:
        """Predict the large crystal."""
        self.predict(self.large)

    def result(self) -> Arrays:
        """Return what is predicted of the small crystal."""
        return {name: np.asarray(value) for name, value in self.predict(self.small).items()}


def calculate(calculator: Calculator, atoms: Atoms) -> dict[str, Any]:
    """Return what an ASE calculator says of a crystal."""
    calculator.calculate(atoms)
    results = calculator.results
    return {
        "energy": results["energy"] / len(atoms),
        "forces": results["forces"],
        "stress": voigt_6_to_full_3x3_stress(results["stress"]),
    }
