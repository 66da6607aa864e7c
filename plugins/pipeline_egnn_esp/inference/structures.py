"""The structures that are predicted: where they come from, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from ase import Atoms
from ase.cell import Cell
from numpy.typing import NDArray

from pipeline_core.fields import named_sample
from pipeline_core.inference.structures import atoms_of_file, sample_row
from pipeline_core.run import Run
from pipeline_core.samples import SampleFile
from pipeline_core.structure import Structure
from pipeline_egnn_esp.basis import Basis
from pipeline_egnn_esp.inference.options import PredictedStructure
from pipeline_egnn_esp.inference.tiling import Tiling
from pipeline_egnn_esp.matrices import BlockMatrix
from pipeline_egnn_esp.sources import MATRIX_FIELDS, read_basis, read_matrix
from pipeline_egnn_esp.sources.cp2k_matrices import wrap_atoms

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Subject:
    """A structure to be predicted.

    Attributes:
        options: What is wanted.
        structure: Atoms, in [-1/2, 1/2) of periodic directions, so that the images of all outputs
            are those that CP2K means.
        tiling: The matrices of the data for it; None if its overlap is unknown.
    """

    options: PredictedStructure
    structure: Structure
    tiling: Tiling | None


def make_subject(run: Run, options: PredictedStructure, basis: Basis) -> Subject:
    """Return a structure that the experiment names.

    Args:
        run: The run whose dataset samples come from.
        options: Which one.
        basis: That of the model.

    Raises:
        ValueError: There is no such sample or file, it cannot be repeated, or it holds an element
            that the model does not know.
    """
    place = f"infer.structures: {options.name}"
    named = named_sample(options.start)
    matrix: BlockMatrix | None = None
    if named:
        matrix = _read_sample(run, *named, place)
        one = matrix.structure
    else:
        one = _read_file(options.start, place)
    idle = [axis for axis in range(3) if options.repeat[axis] > 1 and not one.pbc[axis]]
    if idle:
        raise ValueError(
            f"{place}: {options.start!r} is not periodic along cell vector {idle[0] + 1}, so it "
            "cannot be repeated along it; set this `repeat` to 1"
        )
    try:
        basis.counts(one.atomic_numbers)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    straight = _repeat(one, options.repeat)
    structure = wrap_atoms(straight)
    if matrix is None or options.overlap == "unknown":
        return Subject(options, structure, None)
    moved = compute_moves(straight, structure)
    return Subject(options, structure, Tiling(matrix, options.repeat, structure, moved))


def _read_sample(run: Run, split: str, number: int, place: str) -> BlockMatrix:
    fields = [name for name in MATRIX_FIELDS if name not in ("group", "source")]
    with SampleFile(run.data, "data", fields) as data:
        return read_matrix(data.read(sample_row(data, split, number, place)), read_basis(data))


def _read_file(path: str, place: str) -> Structure:
    atoms = atoms_of_file(path, place)
    idle = atoms.pbc & ~atoms.cell.any(1)
    if idle.any():
        raise ValueError(f"{place}: {path}: a periodic direction has no cell vector; correct it")
    return Structure(
        atoms.numbers.astype(np.int32),
        np.asarray(atoms.positions, dtype=np.float64),
        np.asarray(atoms.cell.complete() if atoms.pbc.any() else atoms.cell, dtype=np.float64),
        np.asarray(atoms.pbc),
    )


def _repeat(one: Structure, repeat: tuple[int, int, int]) -> Structure:
    atoms = Atoms(one.atomic_numbers, one.positions, cell=Cell(one.cell), pbc=one.pbc)
    tiled = atoms.repeat(repeat)
    return replace(
        one,
        atomic_numbers=tiled.numbers.astype(np.int32),
        positions=np.asarray(tiled.positions),
        cell=np.asarray(tiled.cell),
    )


def compute_moves(before: Structure, after: Structure) -> Ints:
    """Return by how many lattice vectors each atom has been moved back, (n_atoms, 3)."""
    if not before.pbc.any():
        return np.zeros((len(before.positions), 3), dtype=np.int64)
    moves = (before.positions - after.positions) @ np.linalg.inv(before.cell)
    return np.rint(moves).astype(np.int64)
