"""Source `packed`: HDF5 files with one group a structure, as the shipped hafnia set has them.

Elements are real numbers, or whole ones: then `H_powers` and `S_powers` have an exponent for each
block, and the elements 0, -1, 1, -2, 2, ... times two to this power are the numbers 0, 1, 2, ...
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from ase.data import chemical_symbols

from pipeline_atoms.structure import Structure
from pipeline_core.data.hdf5 import open_hdf5, read_dataset
from pipeline_core.units import find_factor
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.datasets import PackedSource
from pipeline_egnn_esp.data.matrices import BlockMatrix, is_first

_DATASETS: Final = (
    "positions", "cell", "atomic_numbers", "atom_pairs", "chunk_shapes", "H", "S",
)  # fmt: skip


def read_packed(path: Path, source: PackedSource) -> Iterator[tuple[str, BlockMatrix]]:
    """Read all structures of a file.

    Args:
        path: The file.
        source: Basis and cutoff.

    Yields:
        Name of the group, and its matrices in eV.

    Raises:
        ValueError: The file is damaged, lacks something, or does not fit the basis.
    """
    with open_hdf5(path) as file:
        if "energy_unit" not in file.attrs:
            raise ValueError(
                f"{path}: does not state the unit of H; set the attribute energy_unit of the "
                "file, such as hartree or eV"
            )
        unit = str(file.attrs["energy_unit"])
        for name in file:
            arrays = _read_arrays(file[name], f"{path}: {name}")
            try:
                yield name, _make_matrix(arrays, find_factor("energy", unit), source)
            except ValueError as error:
                raise ValueError(f"{path}: {name}: {error}") from error


def _read_arrays(group: Any, place: str) -> dict[str, Any]:
    missing = [name for name in _DATASETS if name not in group]
    if missing:
        raise ValueError(
            f"{place}: lacks {', '.join(missing)}; a structure needs {', '.join(_DATASETS)}"
        )
    arrays = {name: read_dataset(group[name]) for name in _DATASETS}
    _require_shapes(arrays, place)
    sizes = arrays["chunk_shapes"].astype(np.int64).prod(axis=1)
    for name in ("H", "S"):
        if len(arrays[name]) != sizes.sum():
            raise ValueError(
                f"{place}: truncated: {name} has {len(arrays[name])} elements, its blocks "
                f"{sizes.sum()}; write the file again"
            )
        if arrays[name].dtype.kind != "f":
            arrays[name] = _unpack(arrays[name], group, name, sizes, place)
    return arrays


def _require_shapes(arrays: dict[str, Any], place: str) -> None:
    n_atoms, n_blocks = len(arrays["atomic_numbers"].ravel()), len(arrays["H"].ravel())
    expected: dict[str, tuple[tuple[int, ...], str]] = {
        "positions": ((n_atoms, 3), "f"),
        "cell": ((3, 3), "f"),
        "atomic_numbers": ((n_atoms,), "iu"),
        "atom_pairs": ((len(np.atleast_1d(arrays["atom_pairs"])), 5), "iu"),
        "chunk_shapes": ((len(np.atleast_1d(arrays["chunk_shapes"])), 2), "iu"),
        "H": ((n_blocks,), "fiu"),
        "S": ((n_blocks,), "fiu"),
    }
    for name, (shape, kinds) in expected.items():
        array = arrays[name]
        if (name != "S" and array.shape != shape) or array.dtype.kind not in kinds:
            raise ValueError(
                f"{place}: {name} is {array.dtype} of the shape {array.shape}, expected numbers of "
                f"the shape {shape}; write the file again"
            )
    numbers = arrays["atomic_numbers"]
    if ((numbers < 1) | (numbers >= len(chemical_symbols))).any():
        raise ValueError(f"{place}: an atomic number belongs to no element; write the file again")
    if not (np.isfinite(arrays["positions"]).all() and np.isfinite(arrays["cell"]).all()):
        raise ValueError(f"{place}: positions or cell are not finite; write the file again")


def _unpack(numbers: Any, group: Any, name: str, sizes: Any, place: str) -> Any:
    """Return the elements from whole numbers and the exponent of each block."""
    powers = f"{name}_powers"
    if powers not in group or len(group[powers]) != len(sizes):
        raise ValueError(
            f"{place}: {name} holds whole numbers, but {powers}, the power of two of each "
            "block, is missing or too short; write the file again"
        )
    counts = (numbers // 2).astype(np.int64)
    signed = np.where(numbers % 2, -counts - 1, counts).astype(np.float64)
    return np.ldexp(signed, np.repeat(read_dataset(group[powers]), sizes))


def _make_matrix(arrays: dict[str, Any], to_ev: float, source: PackedSource) -> BlockMatrix:
    atoms = Structure(
        arrays["atomic_numbers"].astype(np.int32),
        arrays["positions"].astype(np.float64),
        arrays["cell"].astype(np.float64),
        np.array([True, True, True]),
    )
    basis = _make_basis(atoms, source)
    if len(arrays["chunk_shapes"]) != len(arrays["atom_pairs"]):
        raise ValueError("chunk_shapes and atom_pairs differ in length; write the file again")
    shift, block_atoms = np.split(arrays["atom_pairs"].astype(np.int64), [3], axis=1)
    if len(block_atoms) and not 0 <= block_atoms.min() <= block_atoms.max() < len(atoms.positions):
        raise ValueError("atom_pairs names atoms that the structure lacks; write the file again")
    if not is_first(block_atoms[:, 0], block_atoms[:, 1], shift).all():
        raise ValueError(
            "atom_pairs holds both of a hermitian pair; keep R > 0, and for R = 0 pairs with i <= j"
        )
    shapes = basis.count_orbitals_per_atom(atoms.atomic_numbers)[block_atoms]
    wrong = np.flatnonzero((shapes != arrays["chunk_shapes"]).any(axis=1))
    if len(wrong):
        raise ValueError(
            f"block {wrong[0]} has the shape {tuple(arrays['chunk_shapes'][wrong[0]].tolist())}, "
            f"but the basis gives {tuple(shapes[wrong[0]].tolist())}; correct `basis` of the source"
        )
    matrix = BlockMatrix(
        structure=atoms,
        basis=basis,
        block_atoms=block_atoms,
        block_shift=shift,
        hamiltonian=arrays["H"].astype(np.float64) * to_ev,
        overlap=arrays["S"].astype(np.float64),
    )
    return matrix if source.cutoff is None else matrix.take(matrix.lengths <= source.cutoff)


def _make_basis(atoms: Structure, source: PackedSource) -> Basis:
    symbols = [chemical_symbols[z] for z in np.unique(atoms.atomic_numbers)]
    unknown = [symbol for symbol in symbols if symbol not in source.basis]
    if unknown:
        raise ValueError(
            f"holds {unknown[0]}, which `basis` of the source lacks; add the degrees of "
            f"its shells, such as {unknown[0]}: [0, 1]"
        )
    return Basis({symbol: tuple(source.basis[symbol]) for symbol in symbols})
