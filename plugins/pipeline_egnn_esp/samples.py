"""Structures with their graph, and the blocks of a matrix as labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_core.batch import Batch, collate
from pipeline_core.config.sections import GraphOptions
from pipeline_core.fields import FIELDS, SPLITS, Field
from pipeline_core.graphs import graph_fields, neighbour_graph
from pipeline_core.run import Run
from pipeline_core.samples import SampleFile
from pipeline_core.structure import Structure
from pipeline_core.task import Sizes
from pipeline_egnn_esp.basis import Basis
from pipeline_egnn_esp.distributed import twins
from pipeline_egnn_esp.labels import labels
from pipeline_egnn_esp.matrices import BlockIndex, BlockMatrix, Quantity, is_first
from pipeline_egnn_esp.options import ESPOptions
from pipeline_egnn_esp.sources import matrix_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

INPUTS: Final = ("atomic_numbers", "positions", "cell", "pbc")
_DATA: Final = (*INPUTS, "block_atoms", "block_shift", "hamiltonian", "overlap")
UNITS: Final = {"hamiltonian": "eV", "overlap": "1"}


def block_fields(basis: Basis, target: Quantity) -> tuple[Field, Field]:
    """Return the labels `node_blocks` and `edge_blocks`, in the common layout of a basis."""
    shape, unit = (basis.n_common, basis.n_common), UNITS[target]
    return (
        Field("node_blocks", shape, unit, "atom", "f4", "Blocks of atoms.", label=True),
        Field("edge_blocks", shape, unit, "edge", "f4", "Blocks of edges.", label=True),
    )


class MatrixSamples:
    """The samples of one split.

    Batches hold the inputs of `Network`, and the labels `node_blocks` and `edge_blocks`, NaN where
    they are padding or not known: beyond the farthest block that the data hold of a structure.
    Nearer pairs without a block have zeros.

    Args:
        run: The run whose data and graph are read.
        split: Name of the split.
        basis: Of the data.
        options: Which matrix is learned.
        dtype: Type of floating-point tensors.
    """

    def __init__(
        self, run: Run, split: str, basis: Basis, options: ESPOptions, dtype: torch.dtype
    ) -> None:
        graph = graph_fields(run.section("graph", GraphOptions))
        self._data = SampleFile(run.data, "data", _DATA)
        self._graph = SampleFile(run.graph, "graph", [field.name for field in graph])
        if len(self._data) != len(self._graph):
            raise ValueError(
                f"{run.graph}: holds {len(self._graph)} graphs for the {len(self._data)} samples "
                f"of {run.data}; run the stage 'graph' again"
            )
        self.numbers = np.flatnonzero(self._data.column("split") == SPLITS.index(split))
        self._basis, self._options, self._dtype = basis, options, dtype
        twin = Field("twin", (), "1", "edge", "i4", "The opposite edge.", "edge")
        own = (twin, *block_fields(basis, options.target))
        self._fields = {**FIELDS, **{field.name: field for field in own}}

    def __len__(self) -> int:
        return len(self.numbers)

    def sizes(self) -> Sizes:
        """Return the rows of each kind that each sample has."""
        return {
            "atom": self._data.counts("atom")[self.numbers],
            "edge": self._graph.counts("edge")[self.numbers],
            "sample": np.ones(len(self), np.int64),
        }

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return samples of this split as one batch."""
        samples = [self._arrays(int(index)) for index in indices]
        return collate(samples, self._dtype, self._fields)

    def labelled(self, index: int) -> Labelled:
        """Return what the labels of a sample, by its number in the split, are made of."""
        number = self.numbers[index]
        graph = self._graph.read(number)
        edges = graph["edge_index"].astype(np.int64), graph["edge_shift"].astype(np.int64)
        matrix, zero = completed(matrix_of(self._data.read(number), self._basis), *edges), 0.0
        if self._options.zero == "structure":
            zero = energy_zero(matrix)
            matrix = replace(matrix, hamiltonian=matrix.hamiltonian - zero * matrix.overlap)
        return Labelled(matrix, zero, *edges)

    def cluster(self, index: int, n_atoms: int) -> Batch:
        """Return atoms of a sample around its first one, without labels and without images."""
        atoms = self.labelled(index).matrix.structure
        order = np.linalg.norm(atoms.positions - atoms.positions[0], axis=1).argsort(kind="stable")
        chosen, pbc = order[:n_atoms], np.zeros(3, dtype=bool)
        numbers, positions = atoms.atomic_numbers[chosen], atoms.positions[chosen]
        graph = neighbour_graph(positions, atoms.cell, pbc, self._options.cutoff)
        own = Structure(numbers, positions, atoms.cell, pbc)
        return collate([_inputs(own, *graph[:2])], self._dtype, self._fields)

    def _arrays(self, index: int) -> Mapping[str, NDArray[Any]]:
        labelled = self.labelled(index)
        node_blocks, edge_blocks = labelled.blocks(self._options.target)
        return {
            **_inputs(labelled.matrix.structure, labelled.edge_index, labelled.edge_shift),
            "node_blocks": node_blocks,
            "edge_blocks": edge_blocks,
        }


@dataclass(frozen=True)
class Labelled:
    """A structure whose blocks are labels of atoms and edges.

    Attributes:
        matrix: With zeros for pairs of the graph that lack a block but are no farther than others
            which have one, and with the zero of energies of the labels.
        energy_zero: What this zero is in the data, eV.
        edge_index: (receiver, sender), (n_edges, 2).
        edge_shift: (n_edges, 3)
    """

    matrix: BlockMatrix
    energy_zero: float
    edge_index: Ints
    edge_shift: Ints

    def blocks(self, quantity: Quantity) -> tuple[Floats, Floats]:
        """Return the blocks of atoms and of edges, NaN where there is nothing to learn.

        Returns:
            (n_atoms, n_common, n_common) and (n_edges, n_common, n_common)
        """
        numbers, mask = self.matrix.structure.atomic_numbers, self.matrix.basis.mask
        blocks = labels(self.matrix, quantity, self.edge_index, self.edge_shift)
        present = mask(*numbers[self.edge_index].T) & blocks.edge_known[:, None, None]
        return (
            np.where(mask(numbers, numbers), blocks.node_blocks, np.nan),
            np.where(present, blocks.edge_blocks, np.nan),
        )

    def entries(self, node_blocks: Floats, edge_blocks: Floats) -> Floats:
        """Return blocks as the matrix has them, zero for those without an edge, (n_entries,)."""
        matrix = self.matrix
        edge = BlockIndex(self.edge_index, self.edge_shift).find(
            matrix.block_atoms, matrix.block_shift
        )
        blocks = np.zeros((len(edge), *node_blocks.shape[1:]))
        blocks[edge >= 0] = edge_blocks[edge[edge >= 0]]
        on_site = matrix.is_on_site
        blocks[on_site] = node_blocks[matrix.block_atoms[on_site, 0]]
        elements = matrix.structure.atomic_numbers[matrix.block_atoms].T
        return matrix.basis.unpadded(blocks, *elements)


def _inputs(atoms: Structure, edge_index: Ints, edge_shift: Ints) -> dict[str, NDArray[Any]]:
    """Return what a network takes of a structure and its graph."""
    return {
        **{name: getattr(atoms, name) for name in INPUTS},
        "edge_index": edge_index,
        "edge_shift": edge_shift,
        "twin": twins(torch.from_numpy(edge_index), torch.from_numpy(edge_shift)).numpy(),
    }


def completed(matrix: BlockMatrix, edge_index: Ints, edge_shift: Ints) -> BlockMatrix:
    """Add blocks of zeros for edges that have none but are no longer than others which have one.

    Programs leave out pairs of atoms whose orbitals do not overlap.
    """
    first = is_first(edge_index[:, 0], edge_index[:, 1], edge_shift)
    index = BlockIndex(matrix.block_atoms, matrix.block_shift)
    lacking = first & (index.find(edge_index, edge_shift) < 0)
    atoms, shifts = edge_index[lacking], edge_shift[lacking]
    positions, cell = matrix.structure.positions, matrix.structure.cell
    vectors = positions[atoms[:, 1]] + shifts @ cell - positions[atoms[:, 0]]
    near = np.linalg.norm(vectors, axis=1) <= matrix.lengths.max()
    if not near.any():
        return matrix
    atoms, shifts = atoms[near], shifts[near]
    counts = matrix.basis.counts(matrix.structure.atomic_numbers)
    zeros = np.zeros(int(counts[atoms].prod(axis=1).sum()))
    return replace(
        matrix,
        block_atoms=np.concatenate([matrix.block_atoms, atoms]),
        block_shift=np.concatenate([matrix.block_shift, shifts]),
        hamiltonian=np.concatenate([matrix.hamiltonian, zeros]),
        overlap=np.concatenate([matrix.overlap, zeros]),
    )


def energy_zero(matrix: BlockMatrix) -> float:
    """Return µ = Σ H S / Σ S² over all elements of both of each hermitian pair, eV."""
    pairs = np.where(matrix.is_on_site, 1.0, 2.0)
    weights = np.repeat(pairs, matrix.shapes.prod(axis=1)) * matrix.overlap
    return float(weights @ matrix.hamiltonian / (weights @ matrix.overlap))
