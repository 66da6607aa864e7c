"""Crystals in which every atom is tied to its site by a spring, as frames of extended XYZ.

Energies, forces and stresses are exact, so that an import which checks them finds nothing.
"""

import numpy as np
from ase.data import chemical_symbols

SPRING, SPACING, RATTLE = 2.0, 2.6, 0.08  # eV/Å², Å, Å
NUMBERS = (1, 3, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 19, 20, 22, 26, 28, 29, 30)
SYMBOLS = np.array(chemical_symbols)[[*NUMBERS]]
COMMENT = (
    'Lattice="%.4f 0 0 0 %.4f 0 0 0 %.4f" Properties=species:S:1:pos:R:3:forces:R:3 '
    'energy=%.8f stress="%.9f %.9f %.9f %.9f %.9f %.9f %.9f %.9f %.9f" material=m%d pbc="T T T"\n'
)
ROW = "%s %.6f %.6f %.6f %.6f %.6f %.6f\n"
Block = tuple[int, int, int]


def draw_species(block: Block, rng: np.random.Generator) -> np.ndarray:
    """Draw up to three elements for the sites of a block."""
    kinds = rng.choice(len(SYMBOLS), rng.integers(1, 4), replace=False)
    return SYMBOLS[kinds[rng.integers(len(kinds), size=np.prod(block))]]


def format_frame(species: np.ndarray, block: Block, material: int, rng: np.random.Generator) -> str:
    """Return a rattled frame of a material as text."""
    sites = np.indices(block).reshape(3, -1).T * SPACING
    moved = rng.normal(0, RATTLE, sites.shape)
    edges = np.array(block) * SPACING
    stress = SPRING * moved.T @ moved / edges.prod()
    energy = 0.5 * SPRING * np.sum(moved**2) - 3.0 * len(sites)
    head = COMMENT % (*edges, energy, *stress.ravel(), material)
    table = np.hstack([sites + moved, -SPRING * moved]).tolist()
    rows = tuple(x for s, row in zip(species, table, strict=True) for x in (s, *row))
    return f"{len(sites)}\n{head}{(ROW * len(sites)) % rows}"
