"""Amorphous hafnia: a crystal melted and quenched, with published weights of CHGNet.

The full cell has the atoms and the edges of "a-HfO2 2", the training structure of Xia et al.,
arXiv:2501.19110, table 1: 3,000 atoms in 52.346 x 26.237 x 26.293 Å. It is molten for a time that
suffices to lose the order of the crystal, and quenched far faster than a laboratory can: a dense
disordered structure, not a study of the glass.
"""

from pathlib import Path

import ase.io
import h5py
import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.calculators.calculator import Calculator
from ase.geometry import get_distances
from ase.neighborlist import neighbor_list

from pipeline_atoms.calculators.calculator import PotentialCalculator
from pipeline_atoms.config.dynamics import MolecularDynamics
from pipeline_atoms.dynamics.dynamics import run_dynamics
from pipeline_chgnet.model.network import CHGNet
from pipeline_chgnet.model.published import read_published
from pipeline_chgnet.options import CHGNetGraphOptions, CHGNetOptions

REPEAT = (10, 5, 5)
CELL = (52.346, 26.237, 26.293)
STAGES = ((6000.0, 200), (4000.0, 40), (2500.0, 40), (1200.0, 40), (300.0, 40))
"""Temperature, K, and steps: molten first, then colder and colder."""
_TIMESTEP, _FRICTION = 2.0, 0.02  # fs, 1/fs
_BOND = 2.8
"""Longest distance between Hf and O that counts as a bond, Å: the first minimum of their g(r)."""


def build_crystal(repeat: tuple[int, int, int]) -> Atoms:
    """Return cells of fluorite, stretched to the density of the full amorphous cell."""
    atoms = bulk("HfO2", "fluorite", a=1.0, cubic=True).repeat(repeat)
    atoms.set_cell(np.array(CELL) / REPEAT * repeat, scale_atoms=True)
    return atoms


def make_calculator() -> PotentialCalculator:
    """Return the published CHGNet."""
    module = CHGNet(CHGNetOptions(), CHGNetGraphOptions())
    module.load_state_dict(read_published())
    return PotentialCalculator(module, CHGNetGraphOptions(), ["O", "Hf"])


def melt_and_quench(
    crystal: Atoms, calculator: Calculator, stages: tuple[tuple[float, int], ...], folder: Path
) -> tuple[Atoms, dict[str, float]]:
    """Run one stage of molecular dynamics after the other, each from the last frame before.

    Returns:
        The quenched atoms, and what came out: temperatures, seconds of a step, disorder.
    """
    atoms, facts = crystal, {}
    for number, (temperature, steps) in enumerate(stages):
        options = MolecularDynamics(
            name=f"stage_{number}",
            ensemble="nvt_langevin",
            steps=steps,
            timestep=_TIMESTEP,
            temperature=temperature,
            friction=_FRICTION,
            every=steps,
        )
        trajectory = folder / f"{options.name}.xyz"
        with h5py.File(trajectory.with_suffix(".h5"), "w") as file:
            group = file.create_group("md")
            summary = run_dynamics(atoms, calculator, options, 0, trajectory, group)
        atoms = ase.io.read(trajectory, -1)
        facts[f"step_{number}_s"] = summary["seconds_per_step"]
    return atoms, facts | measure_disorder(crystal, atoms)


def measure_disorder(crystal: Atoms, atoms: Atoms) -> dict[str, float]:
    """Return how far atoms are from where they were, neighbours of Hf, and the nearest pair."""
    paths = [
        get_distances(start, end, cell=atoms.cell, pbc=True)[1][0, 0]
        for start, end in zip(crystal.positions, atoms.positions, strict=True)
    ]
    is_bond = neighbor_list("d", atoms, {("Hf", "O"): _BOND})
    return {
        "moved_rms": float(np.sqrt(np.mean(np.square(paths)))),
        "coordination": len(is_bond) / 2 / int((atoms.numbers == 72).sum()),
        "nearest": float(neighbor_list("d", atoms, 3.0).min()),
    }
