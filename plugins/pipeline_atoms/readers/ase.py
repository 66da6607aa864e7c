"""Any trajectory, database or structure file that ASE reads, as a stream if ASE can stream.

Labels are searched in the results that ASE's reader attaches to the atoms, then in `info`, then in
the arrays, under the names that the dataset file declares and under no others; without any
declaration under energy, forces, stress and magmoms. Results are taken as stored: constraints do
not zero forces. If a format gives both, `energy` is ASE's energy (often extrapolated to zero
smearing) and `free_energy` is the energy with the forces as gradient.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pipeline_atoms.readers import BadFrame, Floats, Frame, Reader, Units
from pipeline_atoms.readers.frame_checks import LABELS, parse_label, parse_numbers, select_plain
from pipeline_core.data.files import strip_compression

if TYPE_CHECKING:
    from ase import Atoms

_STRUCTURE: Final = {"numbers", "positions"}
_ELEMENT: Final = re.compile(r"([A-Z][a-z]?)(\d*\.?\d*)")
_OPERATIONS: Final = ("_space_group_symop_operation_xyz", "_symmetry_equiv_pos_as_xyz")
_WHOLE: Final = 1e-3


def read(path: Path, keys: Mapping[str, str]) -> Iterator[Frame | BadFrame]:
    """Read a file of any format that ASE supports.

    Args:
        path: The file.
        keys: Field names to the names of the labels in the file.

    Yields:
        Every frame in order. ASE cannot continue after a damaged frame, so the file ends there.
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
        for atoms in _choose_parser(path)(path):
            yield atoms
            index += 1
    except (OSError, EOFError):
        raise
    except Exception as error:  # noqa: BLE001 - ASE's parsers raise errors of any type
        yield BadFrame(index, f"ASE cannot read it, nor what follows: {error!r}")


def _choose_parser(path: Path) -> Callable[[Path], Iterable[Atoms]]:
    if path.suffix in {".db", ".json"}:
        return _read_rows
    return _read_cif if strip_compression(path).endswith(".cif") else _iterate


def _iterate(path: Path) -> Iterator[Atoms]:
    import ase.io

    yield from ase.io.iread(path, index=":", do_not_split_by_at_sign=True)


def _read_rows(path: Path) -> Iterator[Atoms]:
    """Read an ASE database row by row, with its key-value pairs as `info`."""
    import ase.db

    with ase.db.connect(path) as database:
        if path.suffix == ".db":
            _require_own_columns(database)
        numbers = set()
        for row in database.select():
            atoms = row.toatoms()
            atoms.info.update(row.data, **row.key_value_pairs)
            numbers.add(str(row.id))
            yield atoms
    if path.suffix == ".json":
        lost = {key for key in json.loads(path.read_bytes()) if key.isdecimal()} - numbers
        if lost:
            raise ValueError(f"its list of rows lacks {', '.join(sorted(lost))}")


def _require_own_columns(database: Any) -> None:
    """Check that the columns of an SQLite file are in the order in which ASE writes them.

    Their names are a text in the file without a checksum: if two of them were exchanged, forces
    would be read as stress.
    """
    rows = database.connection.execute("PRAGMA table_info(systems)")
    names = [name for _, name, *_ in rows if name in database.columnnames]
    if names != [name for name in database.columnnames if name in names]:
        raise ValueError(
            f"its columns are {', '.join(names)}, which is not their order in databases of ASE"
        )


def _read_cif(path: Path) -> list[Atoms]:
    """Read all structures of a CIF file, and check their atoms against the chemical formula."""
    import ase.io

    with warnings.catch_warnings():
        # ASE skips rows and columns of a table that it does not understand.
        warnings.filterwarnings("error", "Wrong number|Duplicated loop tags", module="ase.io.cif")
        images = list(ase.io.iread(path, index=":", store_tags=True, do_not_split_by_at_sign=True))
    for atoms in images:
        _require_whole(atoms)
    return images


def _require_whole(atoms: Atoms) -> None:
    """Check the atoms of a CIF file against its formula, and that no site is partially occupied."""
    for site in atoms.info.pop("occupancy", {}).values():
        if len(site) != 1 or abs(next(iter(site.values())) - 1) > _WHOLE:
            raise ValueError(f"a site is partially occupied: {site}")
    listed = [atoms.info[name] for name in _OPERATIONS if name in atoms.info]
    group = atoms.info.get("spacegroup")
    if listed and group is not None:
        different = {(*r.ravel(), *np.round(t % 1, 3) % 1) for r, t in group.get_symop()}
        if len(different) != len(listed[0]):
            raise ValueError(
                f"lists {len(listed[0])} operations of symmetry, but its space group {group.no} "
                f"makes {len(different)} of them; correct the one that is wrong"
            )
    formula = atoms.info.get("_chemical_formula_sum", "?")
    if formula in {"?", "."}:
        return
    expected: dict[str, float] = defaultdict(float)
    for symbol, count in _ELEMENT.findall(str(formula)):
        expected["H" if symbol == "D" else symbol] += float(count or 1)
    counts = Counter(atoms.symbols)
    n_units = len(atoms) / (sum(expected.values()) or math.inf)
    if n_units < _WHOLE or any(
        abs(counts[s] - round(n_units) * expected[s]) > _WHOLE for s in {*counts, *expected}
    ):
        raise ValueError(
            f"holds {atoms.symbols} by its sites and symmetry, but its _chemical_formula_sum is "
            f"{formula!r}; correct the one that is wrong"
        )


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
