"""Source `deeph`: the layout of DeepH-pack (H. Li et al., Nat. Comput. Sci. 2, 367 (2022)).

hamiltonians.h5      datasets "[Rx, Ry, Rz, i, j]", atoms from 1: H_ij(R) in eV, all pairs
overlaps.h5          the same for S
element.dat          atomic number of each atom
lat.dat              lattice vectors, Å, one a column
site_positions.dat   positions, Å, one atom a column; R refers to them as they are
orbital_types.dat    a line an atom: degree of each of its shells
info.json            isspinful, fermi_level
"""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import h5py
import numpy as np
from ase.data import chemical_symbols
from ase.geometry import complete_cell
from numpy.typing import NDArray

from pipeline_atoms.structure import Structure
from pipeline_core.data.hdf5 import open_hdf5, read_dataset
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.datasets import DeepHSource
from pipeline_egnn_esp.data.elements import Gathered
from pipeline_egnn_esp.data.matrices import BlockMatrix, Quantity, is_first
from pipeline_egnn_esp.data.matrix_checks import require_hermitian
from pipeline_egnn_esp.data.orders import order_orbitals

_DEGREES: Final = frozenset("0123456789")

Floats = NDArray[np.float64]
Key = tuple[int, int, int, int, int]


def read_deeph(path: Path, source: DeepHSource) -> BlockMatrix:
    """Read one folder.

    Args:
        path: hamiltonians.h5 of the folder.
        source: Periodic directions and cutoff.

    Raises:
        ValueError: A file is missing, damaged, or contradicts another.
    """
    folder = path.parent
    _require_spinless(folder)
    atoms = _read_structure(folder, source)
    shells = _read_shells(folder, atoms)
    basis = _make_basis(folder, atoms, shells)
    try:
        orders = [order_orbitals(own) for own in shells]
    except ValueError as error:
        raise ValueError(f"{folder / 'orbital_types.dat'}: {error}") from None
    blocks = {
        "hamiltonian": _read_blocks(path, orders),
        "overlap": _read_blocks(folder / "overlaps.h5", orders),
    }
    keys = sorted({key for keyed in blocks.values() for key in keyed})
    numbers = np.array(keys, dtype=np.int64).reshape(-1, 5)
    numbers = numbers[is_first(numbers[:, 3], numbers[:, 4], numbers[:, :3])]
    values: dict[str, Floats] = {}
    quantities: tuple[Quantity, ...] = ("hamiltonian", "overlap")
    for quantity in quantities:
        gathered = _average_partners(blocks[quantity], numbers, [len(order) for order in orders])
        try:
            require_hermitian(quantity, gathered.asymmetry)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        values[quantity] = gathered.entries
    matrix = BlockMatrix(
        atoms, basis, numbers[:, 3:], numbers[:, :3], values["hamiltonian"], values["overlap"]
    )
    return matrix if source.cutoff is None else matrix.take(matrix.lengths <= source.cutoff)


def write_deeph(folder: Path, matrix: BlockMatrix) -> None:
    """Write one structure; both members of each hermitian pair.

    Args:
        folder: Made if it does not exist.
        matrix: Matrices to write.
    """
    folder.mkdir(parents=True, exist_ok=True)
    atoms = matrix.structure
    symbols = [chemical_symbols[z] for z in atoms.atomic_numbers]
    shells = [matrix.basis.shells[symbol] for symbol in symbols]
    np.savetxt(folder / "element.dat", atoms.atomic_numbers, fmt="%d")
    cell = complete_cell(atoms.cell)  # the layout requires all vectors
    np.savetxt(folder / "lat.dat", cell.T)
    np.savetxt(folder / "rlat.dat", 2 * np.pi * np.linalg.inv(cell))
    np.savetxt(folder / "site_positions.dat", atoms.positions.T)
    matrix = matrix.join_partners()
    np.savetxt(folder / "R_list.dat", np.unique(matrix.block_shift, axis=0), fmt="%d")
    lines = ["  ".join(map(str, own)) + "\n" for own in shells]
    (folder / "orbital_types.dat").write_text("".join(lines))
    info = {"nsites": len(symbols), "isorthogonal": False, "isspinful": False,
            "norbits": matrix.n_orbitals}  # fmt: skip
    (folder / "info.json").write_text(json.dumps(info))
    theirs = [np.argsort(order_orbitals(own)) for own in shells]
    names: dict[str, Quantity] = {"hamiltonians.h5": "hamiltonian", "overlaps.h5": "overlap"}
    for name, quantity in names.items():
        with h5py.File(folder / name, "w") as file:
            keys = zip(matrix.block_shift.tolist(), matrix.block_atoms.tolist(), strict=True)
            for (R, (i, j)), block in zip(keys, matrix.iterate_blocks(quantity), strict=True):
                file[str([*R, i + 1, j + 1])] = block[np.ix_(theirs[i], theirs[j])]


def _read_table(path: Path, columns: int | None = None) -> Floats:
    """Read a table of numbers."""
    if not path.is_file():
        raise ValueError(
            f"{path}: is missing; convert the calculation to the layout of DeepH again"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            table = np.loadtxt(path, ndmin=2)
    except (ValueError, UserWarning) as error:
        raise ValueError(f"{path}: is not a table of numbers ({error}); write it again") from error
    if columns is not None and table.shape != (3, columns):
        raise ValueError(
            f"{path}: has the shape {table.shape}, expected (3, {columns}): a column for each "
            "vector"
        )
    if not np.isfinite(table).all():
        raise ValueError(f"{path}: a number is not finite; write it again")
    return table


def _read_structure(folder: Path, source: DeepHSource) -> Structure:
    given = _read_table(folder / "element.dat").ravel()
    numbers = np.rint(given).clip(0, 999).astype(np.int32)
    unknown = given[(numbers < 1) | (numbers >= len(chemical_symbols)) | (numbers != given)]
    if len(unknown):
        raise ValueError(
            f"{folder / 'element.dat'}: {unknown[0]:g} is not an atomic number; correct it"
        )
    return Structure(
        numbers,
        _read_table(folder / "site_positions.dat", len(numbers)).T,
        _read_table(folder / "lat.dat", 3).T,
        np.array(source.pbc),
    )


def _read_shells(folder: Path, atoms: Structure) -> list[tuple[int, ...]]:
    path = folder / "orbital_types.dat"
    if not path.is_file():
        raise ValueError(
            f"{path}: is missing; convert the calculation to the layout of DeepH again"
        )
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if len(lines) != len(atoms.atomic_numbers) or not {w for x in lines for w in x} <= _DEGREES:
        raise ValueError(
            f"{path}: {len(lines)} lines for {len(atoms.atomic_numbers)} atoms, or words that are "
            "not degrees; write a line for each atom, such as 0 0 1"
        )
    return [tuple(int(word) for word in line) for line in lines]


def _make_basis(folder: Path, atoms: Structure, shells: list[tuple[int, ...]]) -> Basis:
    shells_of: dict[str, tuple[int, ...]] = {}
    for i, (number, own) in enumerate(zip(atoms.atomic_numbers, shells, strict=True)):
        symbol = chemical_symbols[number]
        if shells_of.setdefault(symbol, own) != own:
            raise ValueError(
                f"{folder / 'orbital_types.dat'}: atom {i + 1} ({symbol}) has the shells "
                f"{list(own)}, others of its element {list(shells_of[symbol])}; give all atoms of "
                "an element one basis set, and write the lines in the order of element.dat"
            )
    return Basis(shells_of)


def _require_spinless(folder: Path) -> None:
    path = folder / "info.json"
    try:
        info = json.loads(path.read_text()) if path.is_file() else {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is not JSON ({error}); write it again") from error
    if not isinstance(info, dict) or info.get("isspinful"):
        raise ValueError(
            f"{path}: the matrices are for spinors, which are not supported; calculate "
            "without spin-orbit coupling"
        )


def _read_blocks(path: Path, orders: list[NDArray[np.int64]]) -> dict[Key, Floats]:
    """Read all blocks of a file, orbitals in our order."""
    if not path.is_file():
        raise ValueError(f"{path}: is missing; hamiltonians and overlaps are both needed")
    blocks: dict[Key, Floats] = {}
    with open_hdf5(path) as file:
        for name, data in file.items():
            key = _parse_key(path, name, len(orders))
            rows, columns = orders[key[3]], orders[key[4]]
            block = read_dataset(data)
            if block.shape != (len(rows), len(columns)) or (block.dtype.kind not in "fiu"):
                raise ValueError(
                    f"{path}: block {name} is {block.dtype} of the shape {block.shape}, but "
                    f"orbital_types.dat gives ({len(rows)}, {len(columns)}); correct the "
                    "types, or the order of the atoms"
                )
            blocks[key] = block[np.ix_(rows, columns)].astype(np.float64)
    return blocks


def _parse_key(path: Path, name: str, n_atoms: int) -> Key:
    try:
        x, y, z, i, j = (int(word) for word in name.strip("[]").split(","))
    except ValueError as error:
        raise ValueError(
            f"{path}: {name!r} is not a block, expected [Rx, Ry, Rz, i, j]; write it again"
        ) from error
    if not (1 <= i <= n_atoms and 1 <= j <= n_atoms):
        raise ValueError(
            f"{path}: block {name} is out of the range 1 to {n_atoms} of the atoms; the files "
            "belong to different structures"
        )
    return x, y, z, i - 1, j - 1


def _average_partners(
    blocks: Mapping[Key, Floats], numbers: NDArray[np.int64], sizes: list[int]
) -> Gathered:
    """Average each block with the transpose of its partner, where both are given."""
    parts, asymmetry = [], 0.0
    for x, y, z, i, j in numbers.tolist():
        pair = [blocks.get((x, y, z, i, j)), blocks.get((-x, -y, -z, j, i))]
        given = [
            one for one in (pair[0], None if pair[1] is None else pair[1].T) if one is not None
        ]
        if not given:
            given = [np.zeros((sizes[i], sizes[j]))]
        asymmetry = max(asymmetry, float(np.abs(given[0] - given[-1]).max()))
        parts.append(sum(given) / len(given))
    return Gathered(np.concatenate([np.ravel(part) for part in parts]), asymmetry, 0.0)
