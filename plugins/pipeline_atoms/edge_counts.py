"""Checks before a neighbour search: valid structures, and enough memory for the edges."""

import math
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline_core.system.memory import require_free

Floats = NDArray[np.float64]

EDGE_BYTES: Final = 100
"""Smallest memory of an edge while it is found and sorted, bytes."""
ANGLE_BYTES: Final = 48
"""Smallest memory of an angle while it is listed, bytes."""
_FEW_ATOMS: Final = 10_000
"""For fewer atoms all pairs fit into 10 GB; for more, counting is much faster than searching."""
_FARTHEST: Final = 1e9
"""Largest coordinate, Å: beyond it no digits are left for distances."""


def require_sound(positions: Floats, cell: Floats, pbc: NDArray[np.bool_]) -> None:
    """Check that neighbours are defined; otherwise the search library would end the process.

    Args:
        positions: (n_atoms, 3) Å.
        cell: (3, 3) rows are lattice vectors, Å.
        pbc: (3,) periodic directions.

    Raises:
        ValueError: There is no atom, a coordinate is not finite or too large, or the vectors of the
            periodic directions are linearly dependent.
    """
    if len(positions) == 0:
        raise ValueError("the structure has no atoms; leave it out")
    sane = np.abs(positions).max(axis=1) <= _FARTHEST  # false for NaN, too
    if not sane.all():
        atom = int(np.flatnonzero(~sane)[0])
        place = ", ".join(f"{x:g}" for x in positions[atom])
        raise ValueError(
            f"atom {atom} has a non-finite or too large position ({place}) Å; correct the "
            "positions, or check what has moved it there"
        )
    vectors = cell[np.asarray(pbc, dtype=bool)]
    if not (np.abs(vectors) <= _FARTHEST).all():
        raise ValueError(f"the cell {cell.tolist()} Å is not finite; correct it")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if (lengths == 0).any() or np.linalg.matrix_rank(vectors / lengths) < len(vectors):
        raise ValueError(
            f"{len(vectors)} directions are periodic, but the vectors of the cell {cell.tolist()} "
            "Å do not span them; give the cell, or set pbc to false where there is none"
        )


def require_room(n_rows: float, n_atoms: int, what: str, row_bytes: int) -> None:
    """Check that there is memory for edges or angles.

    Args:
        n_rows: Number of edges or angles, a lower bound.
        n_atoms: Number of atoms that they belong to.
        what: Their name in the error message.
        row_bytes: Smallest memory of one of them, bytes.

    Raises:
        ValueError: There is not enough memory.
    """
    each = n_rows / max(1, n_atoms)
    require_free(
        n_rows * row_bytes,
        f"{n_rows:.3g} {what} of {n_atoms} atoms, {each:.3g} of each,",
        "check the units of cell and positions, lower the cutoff, or use a machine with more "
        "memory",
    )


def count_edges_at_least(
    positions: Floats, cell: Floats, pbc: NDArray[np.bool_], cutoff: float
) -> float:
    """Return a lower bound on the number of edges of a structure, without listing them.

    Args:
        positions: (n_atoms, 3) Å.
        cell: (3, 3) rows are lattice vectors, Å.
        pbc: (3,) periodic directions.
        cutoff: Å.
    """
    n_atoms = len(positions)
    among_images = n_atoms * estimate_neighbours(n_atoms, cell, pbc, cutoff)
    if n_atoms < _FEW_ATOMS:
        return among_images
    from scipy.spatial import cKDTree

    tree = cKDTree(positions)
    return max(among_images, float(tree.count_neighbors(tree, cutoff)) - n_atoms)


def estimate_neighbours(n_atoms: int, cell: Floats, pbc: NDArray[np.bool_], cutoff: float) -> float:
    """Estimate a lower bound on the mean number of neighbours of an atom, from volumes.

    The images of an atom along any k of the periodic vectors have a density of one in the
    k-dimensional volume that these span; all n atoms along three vectors have a density of n.

    Args:
        n_atoms: Number of atoms in the cell.
        cell: (3, 3) rows are lattice vectors, Å.
        pbc: (3,) periodic directions.
        cutoff: Å.
    """
    vectors, cutoff = cell[np.asarray(pbc, dtype=bool)], min(cutoff, _FARTHEST)
    most = 0.0
    for k, ball in ((1, 2.0), (2, np.pi), (3, 4 / 3 * np.pi)):
        for chosen in combinations(range(len(vectors)), k):
            gram = vectors[list(chosen)] @ vectors[list(chosen)].T
            volume = math.sqrt(max(0.0, float(np.linalg.det(gram))))
            count = ball * cutoff**k * (n_atoms if k == 3 else 1)
            most = max(most, count / volume if volume else math.inf)
    return most
