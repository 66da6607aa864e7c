"""Molecular dynamics through ASE with any calculator, as all sides run it."""

from typing import Any

import ase
import ase.build
import numpy as np
from ase import units
from ase.calculators.calculator import Calculator
from ase.md.verlet import VelocityVerlet


def make_start(repeat: tuple[int, int, int]) -> dict[str, np.ndarray]:
    """Return cells of 8 atoms of MgO at 300 K, as arrays."""
    random = np.random.default_rng(0)
    atoms = ase.build.bulk("MgO", "rocksalt", 4.21, cubic=True).repeat(repeat)
    velocities = random.normal(size=(len(atoms), 3)) * np.sqrt(
        300 * units.kB / atoms.get_masses()[:, None]
    )
    return {
        "numbers": atoms.numbers,
        "positions": atoms.positions + 0.03 * random.normal(size=(len(atoms), 3)),
        "cell": np.array(atoms.cell),
        "velocities": velocities - velocities.mean(axis=0),
    }


class Simulation:
    """A cell that starts the same on all sides.

    Args:
        arrays: Numbers, positions, cell and velocities.
        calculator: Of the side.
        options: Steps of a block whose time is taken (`steps`); steps, and the length of one in fs,
            of a simulation whose energy is followed (`followed`).
    """

    def __init__(
        self, arrays: dict[str, np.ndarray], calculator: Calculator, options: dict[str, Any]
    ) -> None:
        self.arrays, self.calculator, self.steps = arrays, calculator, options["steps"]
        self.drift = self.spread = np.nan
        self.calls = {"step": self.step, "block": self.block}
        self.calls["simulate"] = lambda: self.simulate(*options["followed"])
        self.atoms = self.start()

    def start(self) -> ase.Atoms:
        """Return the cell as it starts."""
        names = ("numbers", "positions", "cell", "velocities")
        atoms = ase.Atoms(**{name: self.arrays[name] for name in names}, pbc=True)
        atoms.calc = self.calculator
        return atoms

    def step(self) -> None:
        """Go one step on, after the forces of the start are known."""
        VelocityVerlet(self.atoms, units.fs).run(1)

    def block(self) -> None:
        """Go some steps from the start; its own forces are a calculation more."""
        VelocityVerlet(self.start(), units.fs).run(self.steps)

    def simulate(self, n_steps: int, timestep: float) -> None:
        """Run without a thermostat and note how the total energy changes.

        Its slope is in meV/atom/ps, its spread, the standard deviation, in meV/atom.
        """
        atoms, energies = self.start(), []
        dynamics = VelocityVerlet(atoms, timestep * units.fs)
        dynamics.attach(lambda: energies.append(atoms.get_total_energy()))
        dynamics.run(n_steps)
        picoseconds = 1e-3 * timestep * np.arange(len(energies))
        self.drift = 1e3 * np.polyfit(picoseconds, energies, 1)[0] / len(atoms)
        self.spread = 1e3 * np.std(energies) / len(atoms)

    def result(self) -> dict[str, np.ndarray]:
        """Return forces of the start, and drift and spread of the last simulation."""
        energy = {"drift": np.array(self.drift), "spread": np.array(self.spread)}
        return {"forces": self.start().get_forces(), **energy}
