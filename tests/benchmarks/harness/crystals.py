"""What is measured of a large structure on all sides alike: a calculator and its crystals."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.calculators.calculator import Calculator
from ase.stress import voigt_6_to_full_3x3_stress

from harness.structures import Arrays, read_structures


def make_crystal(n_atoms: int) -> Atoms:
    """Return rattled hafnia of about so many atoms, as compact as one or two percent allow."""
    cell = bulk("HfO2", "fluorite", a=5.1, cubic=True)
    n_cells = max(1, round(n_atoms / len(cell)))
    shapes = [
        (a, b, c)
        for a in range(1, round(n_cells ** (1 / 3)) + 1)
        for b in range(a, round((n_cells / a) ** 0.5) + 1)
        if abs(a * b * (c := max(1, round(n_cells / (a * b)))) - n_cells) <= 0.015 * n_cells
    ]
    atoms = cell.repeat(min(shapes, key=lambda shape: max(shape) / min(shape)))
    atoms.rattle(0.05, seed=0)
    return atoms


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


class CalculatedCrystals(Crystals):
    """Crystals and an ASE calculator.

    Args:
        arrays: Of the crystals.
        calculator: Of the side.
    """

    def __init__(self, arrays: Arrays, calculator: Calculator) -> None:
        super().__init__(arrays)
        self.calculator = calculator

    def predict(self, atoms: Atoms) -> dict[str, Any]:
        if hasattr(self.calculator, "forget"):
            self.calculator.forget()  # neighbours that ours has kept
        self.calculator.calculate(atoms)
        results = self.calculator.results
        return {
            "energy": results["energy"] / len(atoms),
            "forces": results["forces"],
            "stress": voigt_6_to_full_3x3_stress(results["stress"]),
        }
