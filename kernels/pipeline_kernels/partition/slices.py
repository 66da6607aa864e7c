"""Slices of equal width.

"Augmented partitioning" of Xia et al., "Learning the Electronic Hamiltonian of Large Atomic
Structures" (ICML 2025), arXiv:2501.19110, as in the authors' code: a structure is cut into slices
across one axis. The graph of a slice has its own atoms, all edges that they receive, and for the
senders of other slices virtual nodes, which send and do not receive. Nothing is exchanged, so
virtual nodes have their first features: own atoms are exact in a network of one layer. Blocks of
edges from virtual nodes have no part in the loss.

Here slices are one more way to assign atoms, after which ranks may exchange as after any other.
"""

import numpy as np
from numpy.typing import NDArray

from pipeline_kernels.partition.coordinates import PlaneCoordinates
from pipeline_kernels.partition.low_nn import find_longest

Numbers = NDArray[np.int64]

_ON_PLANE = 1e-6
"""Atoms that lie below the face of a slice by no more, Å, belong to it, however space is turned."""


def cut_by_slices(atoms: PlaneCoordinates, n_parts: int) -> Numbers:
    """Cut across the longest axis into slices of equal width, from where the axis begins.

    Neither atoms nor edges are balanced. A slice with no atoms in it takes the next one, so that
    every part has some. The paper names the axis; among axes about as long the first is taken.

    Args:
        atoms: The atoms.
        n_parts: Number of slices, at most one per atom.

    Returns:
        The part of each atom, `(n_atoms,)`.
    """
    axis = int(find_longest(atoms.extent[None])[0])
    order = np.argsort(atoms.order_atoms()[axis])
    faces = np.arange(1, n_parts) * (atoms.extent[axis] / n_parts)
    begins = np.searchsorted(atoms.coordinates[order, axis], faces - _ON_PLANE)
    least = np.arange(1, n_parts)
    spare = np.maximum.accumulate(begins - least).clip(0, len(order) - n_parts)
    is_first = np.zeros(len(order), np.int64)
    is_first[spare + least] = 1
    labels = np.empty_like(is_first)
    labels[order] = np.cumsum(is_first)
    return labels
