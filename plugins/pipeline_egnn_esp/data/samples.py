"""Structures with their graph, and the blocks of a matrix as labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.domain import Domain
from pipeline_atoms.domains import build_region
from pipeline_atoms.graphs import build_neighbour_graph, find_reverse_edges
from pipeline_atoms.potential.task import open_split
from pipeline_atoms.structure import INPUTS, Structure
from pipeline_core.batch import Batch, collate
from pipeline_core.config.sections import PartitionOptions
from pipeline_core.fields import FIELDS, Field
from pipeline_core.project.run import Run
from pipeline_core.task import Sizes
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.block_reader import BlockReader, PartialMatrix, project_on_overlap
from pipeline_egnn_esp.data.matrices import (
    BlockIndex,
    BlockMatrix,
    Quantity,
    is_first,
    join_matrices,
)
from pipeline_egnn_esp.data.stage import read_matrix
from pipeline_egnn_esp.options import ESPOptions

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_DATA: Final = (*INPUTS, "block_atoms", "block_shift", "hamiltonian", "overlap")
UNITS: Final = {"hamiltonian": "eV", "overlap": "1"}
REVERSE_EDGE: Final = Field("reverse_edge", (), "1", "edge", "i4", "Edge (j, i, -R).", "edge")
_PIECE_EDGES: Final = 2**15
"""Edges whose labels are in memory at a time while tables are fitted to them."""


def make_block_fields(basis: Basis, target: Quantity) -> tuple[Field, Field]:
    """Return the labels `node_blocks` and `edge_blocks`, in the common layout of a basis."""
    shape, unit = (basis.n_common, basis.n_common), UNITS[target]
    return (
        Field("node_blocks", shape, unit, "atom", "f4", "Blocks of atoms.", label=True),
        Field("edge_blocks", shape, unit, "edge", "f4", "Blocks of edges.", label=True),
    )


class MatrixSamples:
    """The samples of one split.

    Batches hold the inputs of `Network`, and the labels `node_blocks` and `edge_blocks`, NaN in
    padding and where labels are missing: beyond the farthest block of a structure in the data.
    Nearer pairs without a block have zeros.

    Args:
        run: The run whose data and graph are read.
        split: Name of the split.
        basis: Basis set of the data.
        options: Options of the model, with the learned matrix.
        dtype: Type of floating-point tensors.
    """

    def __init__(
        self, run: Run, split: str, basis: Basis, options: ESPOptions, dtype: torch.dtype
    ) -> None:
        self._cutoff = run.get_section("graph", GraphOptions).cutoff
        is_whole = run.get_section("partition", PartitionOptions).parts == "samples"
        opened = open_split(run, split, _DATA, preload=is_whole)
        self._data, self._graph, self.numbers = opened
        self._basis, self._options, self._dtype = basis, options, dtype
        self._blocks = BlockReader(self._data, basis)
        own = (REVERSE_EDGE, *make_block_fields(basis, options.target))
        self._fields = {**FIELDS, **{field.name: field for field in own}}

    def __len__(self) -> int:
        return len(self.numbers)

    def sizes(self) -> Sizes:
        """Return the number of rows of each kind in each sample."""
        return {
            "atom": self._data.count_rows("atom")[self.numbers],
            "edge": self._graph.count_rows("edge")[self.numbers],
            "sample": np.ones(len(self), np.int64),
        }

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return samples of this split as one batch."""
        samples = [self._read_arrays(int(index)) for index in indices]
        return collate(samples, self._dtype, self._fields)

    def read_structure(self, index: int) -> Structure:
        """Return the atoms of a sample, by its number in the split."""
        return self._blocks.read_structure(self.numbers[index])

    def read_domain(self, index: int, domain: Domain) -> Batch:
        """Return a rank's part of a sample: its atoms and edges, and labels of own ones."""
        rows, inputs = domain.rows, domain.make_inputs()
        edges = rows[inputs["edge_index"]], inputs["edge_shift"]
        labels = self._read_labels(index, rows[: domain.n_own], *edges)
        return collate([inputs | labels], self._dtype, self._fields)

    def read_pieces(self) -> Iterator[Batch]:
        """Yield all samples, large ones some receivers at a time, with the labels of these."""
        for index, n_edges in enumerate(self._graph.count_rows("edge")[self.numbers]):
            if n_edges <= _PIECE_EDGES:
                yield self.batch([index])
                continue
            structure = self.read_structure(index)
            n_pieces = int(n_edges) // _PIECE_EDGES + 1
            for own in np.array_split(np.arange(len(structure.positions)), n_pieces):
                region = build_region(structure, self._cutoff, own, 1)
                edges = region.rows[region.edge_index], region.edge_shift
                labels = self._read_labels(index, own, *edges)
                yield collate([region.make_inputs() | labels], self._dtype, self._fields)

    def read_labelled(self, index: int) -> Labelled:
        """Return the matrices behind the labels of a sample, by its number in the split."""
        number = self.numbers[index]
        graph = self._graph.read(number)
        edges = graph["edge_index"].astype(np.int64), graph["edge_shift"].astype(np.int64)
        whole = read_matrix(self._data.read(number), self._basis)
        matrix, zero = complete(whole, *edges, float(whole.lengths.max())), 0.0
        if self._options.zero == "structure":
            zero = compute_energy_zero(matrix)
        return Labelled(subtract_zero(matrix, zero), zero, *edges)

    def read_own(
        self, index: int, atoms: Ints, edge_index: Ints, edge_shift: Ints
    ) -> tuple[Labelled, Ints]:
        """Return the blocks of a sample that have some atoms as their rows.

        Args:
            index: Number of the sample in the split.
            atoms: (n,) ascending.
            edge_index: All edges that these atoms receive and that are first of their pair.
            edge_shift: (n_edges, 3)

        Returns:
            The blocks, and the place in the data of each stored one, (n_stored,); blocks added for
            pairs without a stored block follow.
        """
        part = self._blocks.read_blocks(self.numbers[index], atoms)
        is_own = np.isin(part.matrix.block_atoms[:, 0], atoms)
        own = replace(part, matrix=part.matrix.take(is_own), numbers=part.numbers[is_own])
        return self._label(own, edge_index, edge_shift), own.numbers

    def count_stored(self, index: int) -> int:
        """Return the number of blocks of a sample in the data."""
        return int(self._data.count_rows("block")[self.numbers[index]])

    def read_cluster(self, index: int, n_atoms: int) -> Batch:
        """Return atoms of a sample around its first one, without labels and without images."""
        atoms = self.read_structure(index)
        order = np.linalg.norm(atoms.positions - atoms.positions[0], axis=1).argsort(kind="stable")
        chosen, pbc = order[:n_atoms], np.zeros(3, dtype=bool)
        numbers, positions = atoms.atomic_numbers[chosen], atoms.positions[chosen]
        graph = build_neighbour_graph(positions, atoms.cell, pbc, self._cutoff)
        own = Structure(numbers, positions, atoms.cell, pbc)
        return collate([_make_inputs(own, *graph[:2])], self._dtype, self._fields)

    def _read_arrays(self, index: int) -> Mapping[str, NDArray[Any]]:
        labelled = self.read_labelled(index)
        inputs = _make_inputs(labelled.matrix.structure, labelled.edge_index, labelled.edge_shift)
        return inputs | labelled.make_fields(self._options.target)

    def _read_labels(
        self, index: int, atoms: Ints, edge_index: Ints, edge_shift: Ints
    ) -> dict[str, Floats]:
        """Return the labels of some atoms of a sample and of the edges that they receive."""
        part = self._blocks.read_blocks(self.numbers[index], atoms)
        return self._label(part, edge_index, edge_shift).make_fields(self._options.target)

    def _label(self, part: PartialMatrix, edge_index: Ints, edge_shift: Ints) -> Labelled:
        zero = part.energy_zero if self._options.zero == "structure" else 0.0
        matrix = complete(part.matrix, edge_index, edge_shift, part.longest)
        return Labelled(subtract_zero(matrix, zero), zero, edge_index, edge_shift)


@dataclass(frozen=True)
class Labelled:
    """A structure whose blocks are labels of atoms and edges.

    Attributes:
        matrix: Blocks, zero for pairs of the graph that lack a block but are no farther than pairs
            that have one, and with the zero of energies of the labels.
        energy_zero: Energy in the data of this zero, eV.
        edge_index: (receiver, sender), (n_edges, 2).
        edge_shift: (n_edges, 3)
    """

    matrix: BlockMatrix
    energy_zero: float
    edge_index: Ints
    edge_shift: Ints

    def make_blocks(self, quantity: Quantity) -> tuple[Floats, Floats]:
        """Return the blocks of atoms and of edges, NaN where there is nothing to learn.

        Returns:
            (n_atoms, n_common, n_common), of atoms with a block of their own, and (n_edges,
            n_common, n_common)
        """
        matrix, basis = self.matrix, self.matrix.basis
        numbers, atoms, shift = matrix.structure.atomic_numbers, self.edge_index, self.edge_shift
        blocks = basis.pad(getattr(matrix, quantity), *numbers[matrix.block_atoms].T)
        on_site = np.flatnonzero(matrix.is_on_site)
        on_site = on_site[np.argsort(matrix.block_atoms[on_site, 0])]
        own = numbers[matrix.block_atoms[on_site, 0]]
        index = BlockIndex(matrix.block_atoms, matrix.block_shift)
        straight, reverse = index.find(atoms, shift), index.find(atoms[:, ::-1], -shift)
        edge_blocks = np.full((len(atoms), *blocks.shape[1:]), np.nan)
        # Only one of the two is stored.
        edge_blocks[straight >= 0] = blocks[straight[straight >= 0]]
        edge_blocks[reverse >= 0] = blocks[reverse[reverse >= 0]].transpose(0, 2, 1)
        return (
            np.where(basis.mask(own, own), blocks[on_site], np.nan),
            np.where(basis.mask(*numbers[atoms].T), edge_blocks, np.nan),
        )

    def make_fields(self, quantity: Quantity) -> dict[str, Floats]:
        """Return the blocks as fields of a sample."""
        return dict(zip(("node_blocks", "edge_blocks"), self.make_blocks(quantity), strict=True))

    def gather_entries(self, node_blocks: Floats, edge_blocks: Floats) -> Floats:
        """Return blocks in the layout of the matrix, zero where an edge is missing, (n_entries,).

        Args:
            node_blocks: Blocks of atoms with a block of their own, in order.
            edge_blocks: Blocks of the edges.
        """
        matrix = self.matrix
        edge = BlockIndex(self.edge_index, self.edge_shift).find(
            matrix.block_atoms, matrix.block_shift
        )
        blocks = np.zeros((len(edge), *node_blocks.shape[1:]))
        blocks[edge >= 0] = edge_blocks[edge[edge >= 0]]
        on_site = matrix.is_on_site
        atoms = matrix.block_atoms[on_site, 0]
        blocks[on_site] = node_blocks[np.searchsorted(np.sort(atoms), atoms)]
        elements = matrix.structure.atomic_numbers[matrix.block_atoms].T
        return matrix.basis.unpad(blocks, *elements)


def _make_inputs(atoms: Structure, edge_index: Ints, edge_shift: Ints) -> dict[str, NDArray[Any]]:
    """Return the inputs of a network: a structure and its graph."""
    return {
        **vars(atoms),
        "edge_index": edge_index,
        "edge_shift": edge_shift,
        REVERSE_EDGE.name: find_reverse_edges(edge_index, edge_shift),
    }


def complete(
    matrix: BlockMatrix, edge_index: Ints, edge_shift: Ints, longest: float
) -> BlockMatrix:
    """Add zero blocks for edges that lack one but are no longer than edges that have one.

    Programs leave out pairs of atoms whose orbitals do not overlap.

    Args:
        matrix: Some or all blocks.
        edge_index: (receiver, sender), (n_edges, 2).
        edge_shift: (n_edges, 3)
        longest: Distance of the farthest pair with a block, Å.
    """
    first = is_first(edge_index[:, 0], edge_index[:, 1], edge_shift)
    # In a part of a structure either edge of a pair may lie outside.
    outside = ~first & ~np.isin(edge_index[:, 1], edge_index[:, 0])
    edge_index = np.concatenate([edge_index[first], edge_index[outside, ::-1]])
    edge_shift = np.concatenate([edge_shift[first], -edge_shift[outside]])
    index = BlockIndex(matrix.block_atoms, matrix.block_shift)
    lacking = index.find(edge_index, edge_shift) < 0
    atoms, shifts, zeros = edge_index[lacking], edge_shift[lacking], np.zeros(0)
    empty = BlockMatrix(matrix.structure, matrix.basis, atoms, shifts, zeros, zeros)
    near = empty.lengths <= longest
    zeros = np.zeros(int(empty.shapes[near].prod(axis=1).sum()))
    added = replace(
        matrix,
        block_atoms=atoms[near],
        block_shift=shifts[near],
        hamiltonian=zeros,
        overlap=zeros,
    )
    return join_matrices([matrix, added])


def subtract_zero(matrix: BlockMatrix, zero: float) -> BlockMatrix:
    """Return the matrices with another zero of energies, eV."""
    return replace(matrix, hamiltonian=matrix.hamiltonian - zero * matrix.overlap)


def compute_energy_zero(matrix: BlockMatrix) -> float:
    """Return µ = Σ H S / Σ S² over all elements of both of each hermitian pair, eV."""
    with_hamiltonian, with_itself = project_on_overlap(matrix)
    return float(with_hamiltonian / with_itself)
