"""Labels: blocks of atoms and edges in the network's layout, from stored matrices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline_egnn_esp.data.matrices import BlockIndex, BlockMatrix, Quantity

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Labels:
    """One quantity in the common layout of the basis, zero where padded or absent.

    Attributes:
        node_blocks: H_ii(0), (n_atoms, n_common, n_common).
        edge_blocks: H_ij(R), (n_edges, n_common, n_common).
        edge_known: Mask of the edges with a block in the data, (n_edges,).
    """

    node_blocks: Floats
    edge_blocks: Floats
    edge_known: Bools


def make_labels(
    matrix: BlockMatrix, quantity: Quantity, edge_index: Ints, edge_shift: Ints
) -> Labels:
    """Return the blocks of the atoms and edges of a graph.

    Args:
        matrix: One block of each hermitian pair, with all H_ii(0); the other is made here.
        quantity: Hamiltonian or overlap.
        edge_index: (n_edges, 2), (receiver i, sender j).
        edge_shift: (n_edges, 3), cell of j.
    """
    numbers = matrix.structure.atomic_numbers[matrix.block_atoms]
    blocks = matrix.basis.pad(getattr(matrix, quantity), *numbers.T)
    on_site = np.flatnonzero(matrix.is_on_site)
    order = np.argsort(matrix.block_atoms[on_site, 0])
    atoms, shift = edge_index.astype(np.int64), edge_shift.astype(np.int64)
    index = BlockIndex(matrix.block_atoms, matrix.block_shift)
    straight, reverse = index.find(atoms, shift), index.find(atoms[:, ::-1], -shift)
    n = matrix.basis.n_common
    edge_blocks = np.zeros((len(atoms), n, n), dtype=blocks.dtype)
    # Only one of the two is stored.
    edge_blocks[straight >= 0] = blocks[straight[straight >= 0]]
    edge_blocks[reverse >= 0] = blocks[reverse[reverse >= 0]].transpose(0, 2, 1)
    return Labels(blocks[on_site[order]], edge_blocks, (straight >= 0) | (reverse >= 0))
