"""A random packing of the size and density of the structure that the paper partitions."""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

HFO2_BOX = (53.0, 26.06, 26.06)  # Å, 3000 atoms
CLOSEST = 1.7  # Å, about the shortest bond of the oxide


def draw_packing(
    n_atoms: int = 3000,
    box: tuple[float, float, float] = HFO2_BOX,
    tiles: tuple[int, int, int] = (2, 2, 2),
    seed: int = 0,
) -> tuple[Floats, Floats]:
    """Pack atoms at random, none closer than 1.7 Å, into a periodic box and repeats it.

    Random sequential addition. The default has the 24,000 atoms of the amorphous HfO2 of figure 5
    of the paper, at its density.

    Args:
        n_atoms: Atoms in the box.
        box: Edges of the box in Å.
        tiles: Copies of the box along each edge.
        seed: Seed of the random numbers.

    Returns:
        Positions `(n_atoms * n_tiles, 3)` and cell `(3, 3)`, Å.

    Raises:
        ValueError: if the box is too dense for so many atoms.
    """
    rng, edges = np.random.default_rng(seed), np.array(box)
    placed, n_placed = np.empty((n_atoms, 3)), 0
    for _ in range(100 * n_atoms):
        trial = rng.uniform(0, edges)
        apart = np.abs(placed[:n_placed] - trial)
        apart = np.minimum(apart, edges - apart)
        if n_placed == 0 or np.einsum("ij,ij->i", apart, apart).min() > CLOSEST**2:
            placed[n_placed] = trial
            n_placed += 1
            if n_placed == n_atoms:
                break
    else:
        raise ValueError(
            f"n_atoms: no room for {n_atoms} atoms in {box} Å, {n_placed} were placed; "
            "take fewer atoms or a larger box"
        )
    shifts = np.stack(np.meshgrid(*map(np.arange, tiles), indexing="ij"), -1).reshape(-1, 1, 3)
    positions = (placed + shifts * edges).reshape(-1, 3)
    return positions, np.diag(edges * tiles)


def find_edges(positions: Floats, cell: Floats, cutoff: float) -> Numbers:
    """Return all edges up to the cutoff in a periodic box, receiver and sender, `(n_edges, 2)`.

    Args:
        positions: `(n_atoms, 3)` Å, within the box.
        cell: The box, `(3, 3)` Å, diagonal and at least twice the cutoff wide.
        cutoff: Longest edge in Å.

    Raises:
        ValueError: if the box is not rectangular or too small for nearest images alone.
    """
    box = np.diagonal(cell)
    if np.count_nonzero(cell - np.diag(box)) or box.min() < 2 * cutoff:
        raise ValueError(
            f"cell: expected a rectangular box at least {2 * cutoff} Å wide, got {cell.tolist()}"
        )
    tree = cKDTree(positions % box, boxsize=box)
    pairs = tree.query_pairs(cutoff, output_type="ndarray")
    return np.concatenate([pairs, pairs[:, ::-1]])
