"""Structures to be predicted: their sources, and their reference matrices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.dynamics.structures import find_sample_row, read_atoms_of_file
from pipeline_atoms.structure import Structure, parse_start
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.project.run import Run
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.block_reader import BlockReader
from pipeline_egnn_esp.data.cp2k_matrices import wrap_atoms
from pipeline_egnn_esp.data.stage import MATRIX_FIELDS, read_basis
from pipeline_egnn_esp.inference.options import PredictedStructure
from pipeline_egnn_esp.inference.tiling import Tiling

Ints = NDArray[np.int64]

_FIELDS: Final = [name for name in MATRIX_FIELDS if name not in ("group", "source")]


@dataclass(frozen=True)
class Subject:
    """A structure to be predicted.

    Attributes:
        options: Requested outputs.
        structure: Atoms, in [-1/2, 1/2) of periodic directions, so that all outputs count images
            as CP2K does.
        cell: The sample with the reference matrices; None if the overlap is unknown.
    """

    options: PredictedStructure
    structure: Structure
    cell: StoredCell | None


@dataclass(frozen=True)
class StoredCell:
    """A sample of the data whose cell is repeated; each rank reads a part of it.

    Attributes:
        path: The data.
        number: Place of the sample in the data.
        n_blocks: Number of blocks in the data.
        n_entries: Number of elements of these blocks.
        repeat: Copies along its vectors.
        structure: The repeated cell.
        moved: See `Tiling`.
    """

    path: Path
    number: int
    n_blocks: int
    n_entries: int
    repeat: tuple[int, int, int]
    structure: Structure
    moved: Ints

    @property
    def n_copies(self) -> int:
        """Copies of the cell."""
        return int(np.prod(self.repeat))

    def read_tiling(self, rows: Ints) -> Tiling:
        """Return the matrices from which blocks with some atoms as rows can be taken.

        Args:
            rows: Atoms of the repeated cell, (n,).
        """
        atoms = np.unique(rows % (len(self.moved) // self.n_copies))
        with SampleFile(self.path, "data", _FIELDS, preload=False) as data:
            part = BlockReader(data, read_basis(data)).read_blocks(self.number, atoms)
        return Tiling(part.matrix, self.repeat, self.structure, self.moved)


def make_subject(run: Run, options: PredictedStructure, basis: Basis) -> Subject:
    """Return a structure that the experiment names.

    Args:
        run: The run whose dataset samples come from.
        options: Options of the structure.
        basis: Basis of the model.

    Raises:
        ValueError: There is no such sample or file, it cannot be repeated, or it holds an element
            that the model lacks.
    """
    place = f"infer.structures: {options.name}"
    named = parse_start(options.start)
    if named is None:
        one = _read_file(options.start, place)
    else:
        with SampleFile(run.data, "data", _FIELDS, preload=False) as data:
            number = find_sample_row(data, *named, place)
            one = BlockReader(data, read_basis(data)).read_structure(number)
            n_blocks, n_entries = (
                int(data.count_rows(kind)[number]) for kind in ("block", "entry")
            )
    idle = [axis for axis in range(3) if options.repeat[axis] > 1 and not one.pbc[axis]]
    if idle:
        raise ValueError(
            f"{place}: {options.start!r} is not periodic along cell vector {idle[0] + 1}, so it "
            "cannot be repeated along it; set this `repeat` to 1"
        )
    try:
        basis.count_orbitals_per_atom(one.atomic_numbers)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    straight = one.repeat(options.repeat)
    structure = wrap_atoms(straight)
    if named is None:
        return Subject(options, structure, None)
    moved = _compute_moves(straight, structure)
    cell = StoredCell(run.data, number, n_blocks, n_entries, options.repeat, structure, moved)
    return Subject(options, structure, cell)


def _read_file(path: str, place: str) -> Structure:
    atoms = read_atoms_of_file(path, place)
    idle = atoms.pbc & ~atoms.cell.any(1)
    if idle.any():
        raise ValueError(f"{place}: {path}: a periodic direction has no cell vector; correct it")
    if atoms.pbc.any():
        atoms.set_cell(atoms.cell.complete())
    return Structure.of(atoms)


def _compute_moves(before: Structure, after: Structure) -> Ints:
    """Return the lattice vectors by which each atom has been moved back, (n_atoms, 3)."""
    if not before.pbc.any():
        return np.zeros((len(before.positions), 3), dtype=np.int64)
    moves = (before.positions - after.positions) @ np.linalg.inv(before.cell)
    return np.rint(moves).astype(np.int64)
