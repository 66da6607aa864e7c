"""Start structures of inference: samples of the dataset, or files."""

import math

import ase.io
import numpy as np
from ase import Atoms

from pipeline_atoms.config.datasets import Limits
from pipeline_atoms.config.limits import ATOM_BYTES
from pipeline_atoms.importing.plausibility import find_implausible
from pipeline_atoms.structure import INPUTS, Structure, parse_start
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.fields import SPLITS
from pipeline_core.project.run import Run
from pipeline_core.system.memory import require_free


def read_start_structure(
    run: Run, start: str, repeat: tuple[int, int, int] = (1, 1, 1), place: str = "infer.md"
) -> Atoms:
    """Read the structure that `start` names.

    Args:
        run: The run with the dataset of the samples.
        start: A sample as split:number, or the path of a file that ASE can read (its last frame).
        repeat: Copies of the cell along its vectors.
        place: Key of the experiment, for messages.

    Raises:
        ValueError: There is no such sample, the file cannot be read or holds no valid structure, or
            there is no memory for the copies.
    """
    named = parse_start(start)
    atoms = _read_sample(run, *named, place) if named else _read_free_atoms(start, place)
    idle = [axis for axis in range(3) if repeat[axis] > 1 and not atoms.cell[axis].any()]
    if idle:
        raise ValueError(
            f"{place}: start {start!r} has no cell vector {idle[0] + 1} along which to repeat it"
        )
    n_atoms = len(atoms) * math.prod(repeat)
    require_free(float(n_atoms) * ATOM_BYTES, f"{place}: {n_atoms} atoms", "lower repeat")
    return atoms.repeat(repeat)


def find_sample_row(data: SampleFile, split: str, number: int, place: str) -> int:
    """Find the row of a sample in a file, from 0.

    Args:
        data: The samples.
        split: Name of the split.
        number: Number of the sample within the split.
        place: Key of the experiment, for messages.

    Raises:
        ValueError: There is no such sample.
    """
    members = np.flatnonzero(data.read_column("split") == SPLITS.index(split))
    if number >= len(members):
        raise ValueError(
            f"{place}: start '{split}:{number}': {data.path} has {len(members)} samples in the "
            f"split {split!r}, numbered from 0"
        )
    return int(members[number])


def read_atoms_of_file(path: str, place: str) -> Atoms:
    """Read the last frame of a file: numbers, positions, cell, masses and constraints.

    Args:
        path: The file.
        place: Key of the experiment, for messages.

    Raises:
        ValueError: ASE cannot read it.
    """
    try:
        atoms = ase.io.read(path)
    except Exception as error:  # ASE's readers raise errors of any type
        raise ValueError(
            f"{place}: start {path!r} is neither split:number nor a file that ASE can read "
            f"({type(error).__name__}: {error})"
        ) from error
    masses = atoms.get_masses() if atoms.has("masses") else None
    return Atoms(
        atoms.numbers,
        atoms.positions,
        cell=atoms.cell,
        pbc=atoms.pbc,
        masses=masses,
        constraint=atoms.constraints,
    )


def _read_free_atoms(path: str, place: str) -> Atoms:
    """Read the last frame of a file, which must have no constraints and plausible positions."""
    atoms = read_atoms_of_file(path, place)
    if atoms.constraints:
        raise ValueError(
            f"{place}: start {path!r} holds atoms fixed ({type(atoms.constraints[0]).__name__}), "
            "but all atoms move here; remove the constraints from the file"
        )
    sample = vars(Structure.of(atoms))
    if len(atoms) and (problem := find_implausible(sample, Limits(), "relax the structure")):
        raise ValueError(f"{place}: start {path!r}: {problem}")
    return atoms


def _read_sample(run: Run, split: str, number: int, place: str) -> Atoms:
    with SampleFile(run.data, "data", INPUTS) as data:
        sample = data.read(find_sample_row(data, split, number, place))
    return Structure.of_fields(sample).make_atoms()
