"""Small data to try things on, labelled in a second by the effective-medium theory of ASE."""

from __future__ import annotations

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT


def make_alloys(count: int, seed: int = 0) -> list[Atoms]:
    """Return strained and rattled four-atom cells of random composition, with labels.

    Args:
        count: Number of structures, of copper, silver and aluminium.
        seed: Of everything random in them.

    Returns:
        With energy, eV, forces, eV/Å, and stress, eV/Å³, by Jacobsen, Stoltze and Nørskov, Surf.
        Sci. 366, 394 (1996), as ASE has it.
    """
    random = np.random.default_rng(seed)
    structures = []
    for _ in range(count):
        atoms = bulk("Cu", "fcc", a=3.9, cubic=True)
        atoms.symbols = random.choice(["Cu", "Ag", "Al"], size=len(atoms))
        strain = np.eye(3) + random.uniform(-0.04, 0.04, (3, 3))
        atoms.set_cell(atoms.cell[:] @ strain, scale_atoms=True)
        atoms.positions += random.normal(0, 0.08, atoms.positions.shape)
        atoms.calc = EMT()
        atoms.get_potential_energy()
        atoms.get_stress()
        structures.append(atoms)
    return structures


def make_strains(count: int, seed: int = 0) -> list[tuple[float, float, float, float]]:
    """Return lengths of the edges of copper's cubic cell, Å, and the energy, eV/atom.

    Args:
        count: Number of cells.
        seed: Of the lengths, which lie up to 7 % around the equilibrium.
    """
    random, rows = np.random.default_rng(seed), []
    for lengths in random.uniform(3.35, 3.85, (count, 3)):
        atoms = bulk("Cu", "fcc", a=3.6, cubic=True)
        atoms.set_cell(lengths, scale_atoms=True)
        atoms.calc = EMT()
        a, b, c = lengths.tolist()
        rows.append((a, b, c, atoms.get_potential_energy() / len(atoms)))
    return rows
