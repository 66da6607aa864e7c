"""Random packings of any size, and exact counts of atoms, edges and messages of their parts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from pipeline_atoms.structure import Structure
from pipeline_kernels.partition import PartitionMetrics, Rows
from pipeline_kernels.partition.synthetic import draw_packing, find_edges
from pipeline_papers.egnn_esp.studies.options import Packing

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Volumes:
    """Counts of atoms, edges and messages of each part, (n_parts,) each.

    Attributes:
        atoms: Own atoms.
        edges: Edges of own atoms.
        neighbours: Parts from which it receives atoms.
        received: Ghost atoms received in an exchange.
        crossing: Own edges whose sender belongs to another part.
    """

    atoms: Ints
    edges: Ints
    neighbours: Ints
    received: Ints
    crossing: Ints


def pack_box(options: Packing, elements: tuple[int, ...], seed: int) -> Structure:
    """Return a random packing with alternating elements.

    Args:
        options: Box and number of atoms.
        elements: Atomic numbers.
        seed: Seed of the random numbers.

    Raises:
        ValueError: The box is too dense.
    """
    positions, cell = draw_packing(options.atoms, options.box, (1, 1, 1), seed)
    numbers = np.resize(np.array(elements, dtype=np.int32), len(positions))
    return Structure(numbers, positions, cell, np.ones(3, dtype=bool)).repeat(options.tiles)


def find_edges_within(structure: Structure, cutoff: float) -> Ints:
    """Return receiver and sender of all edges of a packing, (n_edges, 2).

    Args:
        structure: Atoms in a periodic, rectangular box at least twice as wide as the cutoff, so
            that each pair of atoms has at most one image within it.
        cutoff: Longest edge, Å.

    Raises:
        ValueError: The box is too small.
    """
    _require_room(structure, cutoff)
    return find_edges(structure.positions, structure.cell, cutoff)


def count_volumes_of_rows(labels: Ints, rows: Rows, metrics: PartitionMetrics) -> Volumes:
    """Return the volumes of a partition, given the whole graph.

    Args:
        labels: Part of each atom, (n_atoms,).
        rows: The graph.
        metrics: The metrics of the partition.
    """
    small = labels.astype(np.int32)
    owners = np.repeat(small, rows.degrees)
    crossing = owners[small[rows.senders] != owners]
    return Volumes(
        atoms=metrics.nodes,
        edges=metrics.edges,
        neighbours=metrics.neighbours,
        received=metrics.received,
        crossing=np.bincount(crossing, minlength=len(metrics.nodes)),
    )


def count_volumes_of_parts(structure: Structure, labels: Ints, cutoff: float) -> Volumes:
    """Return the volumes of a partition, part by part, without the whole graph in memory.

    Args:
        structure: As for `find_edges_within`.
        labels: Part of each atom, (n_atoms,).
        cutoff: Longest edge, Å.

    Raises:
        ValueError: The box is too small.
    """
    _require_room(structure, cutoff)
    box, n_parts = np.diagonal(structure.cell), int(labels.max()) + 1
    places = structure.positions % box
    whole = cKDTree(places, boxsize=box)
    counts = np.zeros((5, n_parts), dtype=np.int64)
    for part in range(n_parts):
        own = np.flatnonzero(labels == part)
        near = cKDTree(places[own], boxsize=box).sparse_distance_matrix(
            whole, cutoff, output_type="ndarray"
        )
        outside = near["j"][labels[near["j"]] != part]
        halo = np.unique(outside)
        owners = np.unique(labels[halo])
        # The search also finds each atom as its own neighbour.
        edges = len(near) - len(own)
        counts[:, part] = len(own), edges, len(owners), len(halo), len(outside)
    return Volumes(*counts)


def _require_room(structure: Structure, cutoff: float) -> None:
    box = np.diagonal(structure.cell)
    if box.min() < 2 * cutoff:
        raise ValueError(
            f"packing: a box of {', '.join(f'{width:g}' for width in box)} Å is less than twice as "
            f"wide as the cutoff of {cutoff:g} Å; take a larger box, more tiles, or shorter edges"
        )
