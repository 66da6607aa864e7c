"""Calculators that cost nothing and whose statistical mechanics is known exactly."""

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes

STIFFNESS = 0.5
"""eV/Å²"""


class Springs(Calculator):
    """Each atom is tied to the centre of all: U = Σ k/2 v² + q/4 v⁴, v = u - mean u.

    u is the displacement from the start. The mean takes the three translations out; with q = 0 the
    other 3 (N - 1) modes are oscillators.
    """

    implemented_properties = ("energy", "free_energy", "forces")

    def __init__(self, start: Atoms, quartic: float = 0.0) -> None:
        super().__init__()
        self._start, self._quartic = start.positions.copy(), quartic

    def calculate(self, atoms=None, properties=(), system_changes=all_changes):
        super().calculate(atoms, properties, system_changes)
        u = self.atoms.positions - self._start
        v = u - u.mean(axis=0)
        energy = float((0.5 * STIFFNESS * v**2 + 0.25 * self._quartic * v**4).sum())
        slope = STIFFNESS * v + self._quartic * v**3
        forces = slope.mean(axis=0) - slope
        self.results = {"energy": energy, "free_energy": energy, "forces": forces}


class IdealGas(Calculator):
    """No interaction at all."""

    implemented_properties = ("energy", "free_energy", "forces", "stress")

    def calculate(self, atoms=None, properties=(), system_changes=all_changes):
        super().calculate(atoms, properties, system_changes)
        forces = np.zeros((len(self.atoms), 3))
        self.results = {"energy": 0.0, "free_energy": 0.0, "forces": forces, "stress": np.zeros(6)}


def make_lattice(n_cells: int = 3, symbol: str = "Cu", spacing: float = 3.0) -> Atoms:
    """Return n_cells³ atoms on a simple cubic lattice."""
    return Atoms(symbol, cell=[spacing] * 3, pbc=True).repeat(n_cells)
