"""A shipped frame of hafnia, repeated, with its graph and its Hamiltonian as labels."""

from dataclasses import replace
from pathlib import Path

import ase
import numpy as np

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.graphs import build_graph, find_reverse_edges
from pipeline_egnn_esp.data.datasets import PackedSource
from pipeline_egnn_esp.data.matrices import BlockMatrix
from pipeline_egnn_esp.data.packed import read_packed
from pipeline_egnn_esp.data.samples import Labelled, complete, compute_energy_zero
from pipeline_egnn_esp.inference.tiling import Tiling

BASIS = {"Hf": [0, 0, 1, 2], "O": [0, 1]}


def read_arrays(path: Path, repeat: tuple[int, int, int], cutoff: float) -> dict[str, np.ndarray]:
    """Return what the networks are given of the first frame of a file.

    Args:
        path: Packed matrices.
        repeat: Copies along the cell vectors.
        cutoff: Of pairs, Å.
    """
    source = PackedSource(reader="packed", path=path.name, basis=BASIS)
    _, cell = next(read_packed(path, source))
    structure = cell.structure
    atoms = ase.Atoms(
        structure.atomic_numbers, structure.positions, cell=structure.cell, pbc=structure.pbc
    ).repeat(repeat)
    inputs = {
        "atomic_numbers": atoms.numbers,
        "positions": atoms.positions,
        "cell": np.array(atoms.cell),
        "pbc": np.array(atoms.pbc),
    }
    moved = np.zeros((len(atoms), 3), dtype=np.int64)
    whole = Tiling(cell, repeat, replace(structure, **inputs), moved).build_matrix()
    graph = build_graph(inputs, GraphOptions(cutoff=cutoff))
    edges = graph["edge_index"].astype(np.int64), graph["edge_shift"].astype(np.int64)
    node_blocks, edge_blocks = make_labels_of(whole, edges)
    return {
        **inputs,
        "edge_index": edges[0],
        "edge_shift": edges[1],
        "reverse_edge": find_reverse_edges(*edges),
        "node_blocks": node_blocks,
        "edge_blocks": edge_blocks,
    }


def make_labels_of(
    matrix: BlockMatrix, edges: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the Hamiltonian of atoms and edges, its zero moved as in training."""
    full = complete(matrix, *edges, float(matrix.lengths.max()))
    zero = compute_energy_zero(full)
    moved = replace(full, hamiltonian=full.hamiltonian - zero * full.overlap)
    return Labelled(moved, zero, *edges).make_blocks("hamiltonian")
