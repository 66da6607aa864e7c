"""Any trajectory, database or structure file that ASE reads, as a stream where ASE can stream.

Labels are looked for in the results that ASE's reader attaches to the atoms, then in `info`, then
in the arrays, under the names that the dataset file declares and under no others; without any
declaration under energy, forces, stress and magmoms. Results are taken as stored: constraints do
not zero forces. Where a format gives both, `energy` is ASE's energy (often extrapolated to zero
smearing) and `free_energy` the one whose gradient the forces are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pipeline_core.readers import BadFrame, Floats, Frame, Reader, Units
from pipeline_core.readers.checks import LABELS, parse_label, parse_numbers, select_plain

if TYPE_CHECKING:
    from ase import Atoms

_STRUCTURE: Final = {"numbers", "positions"}


def read(path: Path, keys: Mapping[str, str]) -> Iterator[Frame | BadFrame]:
    """Read a file of any format known to ASE.

    Args:
        path: The file.
        keys: Field names to the names of the labels in the file.

    Yields:
        Every frame in order. ASE cannot go on behind a damaged frame, so the file ends there.
    """
    names = keys or {name: name for name in LABELS}
    for index, atoms in enumerate(_read_images(path)):
        try:
            yield atoms if isinstance(atoms, BadFrame) else _make_frame(atoms, names, index)
        except ValueError as error:
            yield BadFrame(index, str(error))


def iterate_values(path: Path) -> Iterator[Mapping[str, Floats]]:
    """Yield, for each good frame, its numeric values besides the structure, by their names."""
    for atoms in _read_images(path):
        if not isinstance(atoms, BadFrame):
            arrays = {name: parse_numbers(value) for name, value in _collect_values(atoms).items()}
            yield {name: array for name, array in arrays.items() if array is not None}


def _read_images(path: Path) -> Iterator[Atoms | BadFrame]:
    index = 0
    try:
        for atoms in _read_rows(path) if path.suffix in {".db", ".json"} else _iterate(path):
            yield atoms
            index += 1
    except (OSError, EOFError):
        raise
    except Exception as error:  # noqa: BLE001 - ASE's parsers let through whatever they trip over
        yield BadFrame(index, f"ASE cannot read it, nor what follows: {error!r}")


def _iterate(path: Path) -> Iterator[Atoms]:
    import ase.io

    yield from ase.io.iread(path, index=":", do_not_split_by_at_sign=True)


def _read_rows(path: Path) -> Iterator[Atoms]:
    """Read an ASE database row by row, with its key-value pairs as `info`."""
    import ase.db

    with ase.db.connect(path) as database:
        for row in database.select():
            atoms = row.toatoms()
            atoms.info.update(row.data, **row.key_value_pairs)
            yield atoms


def _collect_values(atoms: Atoms) -> dict[str, Any]:
    arrays = {name: array for name, array in atoms.arrays.items() if name not in _STRUCTURE}
    return {**arrays, **atoms.info, **(atoms.calc.results if atoms.calc else {})}


def _make_frame(atoms: Atoms, keys: Mapping[str, str], index: int) -> Frame:
    available = _collect_values(atoms)
    labels = {name: available[key] for name, key in keys.items() if available.get(key) is not None}
    return Frame(
        atomic_numbers=atoms.numbers.astype(np.int32),
        positions=atoms.positions.astype(np.float64),
        cell=np.array(atoms.cell, dtype=np.float64),
        pbc=np.array(atoms.pbc),
        labels={name: parse_label(name, value) for name, value in labels.items()},
        info=select_plain(
            {key: value for key, value in atoms.info.items() if key not in keys.values()}
        ),
        index=index,
    )


READER: Final = Reader(
    name="ase",
    summary="Whatever ASE reads: trajectories, databases, structures; labels of chosen names.",
    suffixes=(".traj", ".db", ".json", ".cif"),
    units=Units(),
    read=read,
    keys=True,
    values=iterate_values,
)
