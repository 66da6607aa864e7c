"""The structure that a molecular-dynamics run starts from."""

from __future__ import annotations

import re

import ase.io
import numpy as np
from ase import Atoms

from pipeline_core.fields import SPLITS
from pipeline_core.run import Run
from pipeline_core.samples import SampleFile


def start_structure(run: Run, start: str, repeat: tuple[int, int, int] = (1, 1, 1)) -> Atoms:
    """Return the structure that `start` names.

    Args:
        run: The run whose dataset samples come from.
        start: A sample as split:number, or the path of a file that ASE can read (its last frame).
        repeat: Copies of the cell along its vectors.

    Raises:
        ValueError: There is no such sample, or the file cannot be read.
    """
    sample = re.fullmatch(rf"({'|'.join(SPLITS)}):(\d+)", start)
    atoms = _sample(run, sample[1], int(sample[2])) if sample else _from_file(start)
    idle = [axis for axis in range(3) if repeat[axis] > 1 and not atoms.cell[axis].any()]
    if idle:
        raise ValueError(
            f"infer.md: start {start!r} has no cell vector {idle[0] + 1} along which to repeat it"
        )
    return atoms.repeat(repeat)


def _sample(run: Run, split: str, number: int) -> Atoms:
    with SampleFile(run.data, "data", ["atomic_numbers", "positions", "cell", "pbc"]) as data:
        members = np.flatnonzero(data.column("split") == SPLITS.index(split))
        if number >= len(members):
            raise ValueError(
                f"infer.md: start '{split}:{number}': {run.data} has {len(members)} samples in the "
                f"split {split!r}, numbered from 0"
            )
        sample = data.read(int(members[number]))
    return Atoms(
        sample["atomic_numbers"], sample["positions"], cell=sample["cell"], pbc=sample["pbc"]
    )


def _from_file(path: str) -> Atoms:
    try:
        atoms = ase.io.read(path)
    except Exception as error:  # ASE's readers raise whatever their parsing meets
        raise ValueError(
            f"infer.md: start {path!r} is neither split:number nor a file that ASE can read "
            f"({type(error).__name__}: {error})"
        ) from error
    return Atoms(atoms.numbers, atoms.positions, cell=atoms.cell, pbc=atoms.pbc)
