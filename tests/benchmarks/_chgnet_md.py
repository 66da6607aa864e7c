"""Molecular dynamics through ASE with one of the calculators, for `_worker.py`."""

from typing import Any

import ase
import numpy as np
from ase import units
from ase.calculators.calculator import Calculator
from ase.data import chemical_symbols
from ase.md.verlet import VelocityVerlet

from pipeline_core.config.sections import GraphOptions

SIMULATIONS = {"simulate": (20, 1.0), "simulate_long": (10_000, 2.0)}
"""Steps, and the length of one in fs."""


class Dynamics:
    """A cell that starts the same on all sides.

    Args:
        arrays: Numbers, positions, cell and velocities.
        options: The calculator (`side`), and the steps of a block.
    """

    def __init__(self, arrays: dict[str, np.ndarray], options: dict[str, Any]) -> None:
        self.arrays, self.steps = arrays, options["steps"]
        self.calculator = make_calculator(options["side"])
        self.drift = np.nan
        self.calls = {"step": self.step, "block": self.block}
        self.calls |= {name: lambda of=of: self.simulate(*of) for name, of in SIMULATIONS.items()}
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
        """Run without a thermostat and note the slope of the total energy, meV/atom/ps."""
        atoms, energies = self.start(), []
        dynamics = VelocityVerlet(atoms, timestep * units.fs)
        dynamics.attach(lambda: energies.append(atoms.get_total_energy()))
        dynamics.run(n_steps)
        picoseconds = 1e-3 * timestep * np.arange(len(energies))
        self.drift = 1e3 * np.polyfit(picoseconds, energies, 1)[0] / len(atoms)

    def result(self) -> dict[str, np.ndarray]:
        """Return forces of the start, and the drift of the last simulation."""
        return {"forces": self.start().get_forces(), "drift": np.array(self.drift)}


def make_calculator(side: str) -> Calculator:
    """Return the calculator of a side: published weights, or a network with untrained heads."""
    if side == "peer":
        from chgnet.model import CHGNet as Peer
        from chgnet.model.dynamics import CHGNetCalculator

        model = Peer.load(use_device="cpu", verbose=False)
        return CHGNetCalculator(model, use_device="cpu")
    from _chgnet_ours import build_model

    from pipeline_core.inference.calculator import PotentialCalculator

    model = build_model(side == "heads")
    graph = GraphOptions(cutoff=6.0, angle_cutoff=3.0)
    return PotentialCalculator(model, graph, chemical_symbols)
