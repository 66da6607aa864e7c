"""Radial distribution functions of trajectories."""

from collections.abc import Callable, Iterable
from itertools import combinations_with_replacement
from typing import Final

import numpy as np
from ase.data import chemical_symbols
from numpy.typing import NDArray

from pipeline_atoms.dynamics.blocks import BLOCKS, find_block_error
from pipeline_atoms.graphs import build_neighbour_graph

Floats = NDArray[np.float64]

RADIUS: Final = 8.0
"""Å"""
BINS: Final = 160


def compute_radial_distribution(
    numbers: NDArray[np.int64],
    frames: Iterable[tuple[Floats, Floats]],
    radius: float = RADIUS,
    n_bins: int = BINS,
) -> tuple[Floats, dict[str, Floats]]:
    """Average g_ab(r) for each pair of elements: the density of b around a over its mean density.

        g_ab(r) = V / (N_a N_b) * n_ab(r) / v(r)

    n_ab counts the ordered pairs of a frame in a shell, all periodic images included, and v is the
    volume of the shell. For an ideal gas in a large cell g is 1 - δ_ab / N_a: an atom is not its
    own neighbour.

    Args:
        numbers: (n_atoms,) atomic numbers.
        frames: At least one frame, periodic in three directions: positions (n_atoms, 3) and cell
            (3, 3) in Å.
        radius: Largest distance, Å; beyond half of the cell the lattice of images shows in g.
        n_bins: Number of shells.

    Returns:
        Centres of the shells (n_bins,), Å, and "A-B" -> g (n_bins,).
    """
    species, kinds = np.unique(numbers, return_inverse=True)
    edges = np.linspace(0, radius, n_bins + 1)
    shells = 4 / 3 * np.pi * np.diff(edges**3)
    total = np.zeros((len(species), len(species), n_bins))
    n_frames = 0
    for positions, cell in frames:
        total += _count_pairs(positions, cell, kinds, total.shape, radius) * abs(
            np.linalg.det(cell)
        )
        n_frames += 1
    abundance = np.bincount(kinds)
    total /= n_frames * shells * np.multiply.outer(abundance, abundance)[:, :, None]
    pairs = combinations_with_replacement(range(len(species)), 2)
    names = [chemical_symbols[z] for z in species]
    return (edges[1:] + edges[:-1]) / 2, {f"{names[a]}-{names[b]}": total[a, b] for a, b in pairs}


def average_over_blocks(
    numbers: NDArray[np.int64],
    read: Callable[[int], tuple[Floats, Floats]],
    chosen: NDArray[np.int64],
) -> tuple[Floats, dict[str, Floats], dict[str, Floats]]:
    """Average radial distribution functions over frames, with standard errors over blocks of them.

    Args:
        numbers: (n_atoms,) atomic numbers.
        read: Function that returns positions and cell of a frame by its number.
        chosen: Numbers of the frames, at least one.

    Returns:
        Centres of the shells, Å; "A-B" -> g; and "A-B" -> standard error, empty for one block.
    """
    blocks = np.array_split(chosen, min(BLOCKS, len(chosen)))
    parts = [compute_radial_distribution(numbers, map(read, block)) for block in blocks]
    values = {name: np.stack([pairs[name] for _, pairs in parts]) for name in parts[0][1]}
    sizes = list(map(len, blocks))
    means = {name: np.average(rows, axis=0, weights=sizes) for name, rows in values.items()}
    several = values if len(blocks) > 1 else {}
    return parts[0][0], means, {name: find_block_error(rows) for name, rows in several.items()}


def _count_pairs(
    positions: Floats, cell: Floats, kinds: NDArray[np.int64], shape: tuple[int, ...], radius: float
) -> Floats:
    """Count ordered pairs by elements and shell, `shape` = (n_species, n_species, n_bins)."""
    pbc = np.ones(3, dtype=bool)
    index, _, distance = build_neighbour_graph(positions, cell, pbc, radius)
    shell = np.minimum((distance / radius * shape[2]).astype(np.int64), shape[2] - 1)
    flat = np.ravel_multi_index((kinds[index[:, 0]], kinds[index[:, 1]], shell), shape)
    return np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape).astype(float)
