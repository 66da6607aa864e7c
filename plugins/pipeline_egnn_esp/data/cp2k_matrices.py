"""Source `cp2k_matrices`: Kohn-Sham and overlap matrices written by CP2K, beside its output.

With k-points and REAL_SPACE .TRUE. there is one file for each image R, and the output lists the
images. R refers to atoms wrapped into [-1/2, 1/2) of the cell. Without, the matrices are for the
Gamma point, sums over all images, which can be separated only if the cell is large enough.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from ase.data import chemical_symbols
from numpy.typing import NDArray

from pipeline_atoms.readers.cp2k_input import read_structure
from pipeline_atoms.structure import Structure
from pipeline_core.units import HARTREE
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.cp2k_log import Log, read_log
from pipeline_egnn_esp.data.csr import read_csr
from pipeline_egnn_esp.data.datasets import CP2KSource
from pipeline_egnn_esp.data.elements import Elements, Places
from pipeline_egnn_esp.data.matrices import BlockMatrix, find_pairs_within
from pipeline_egnn_esp.data.matrix_checks import require_hermitian, require_unfolded

Floats = NDArray[np.float64]
Image = tuple[int, int, int]

_FILE: Final = re.compile(r"-(KS|S)_SPIN_(\d+)(?:_R_(\d+))?-1_(\d+)\.csr(?:\.gz|\.bz2|\.xz)?$")
_OPTION: Final = {"KS": "KS_CSR_WRITE", "S": "S_CSR_WRITE"}
_GAMMA_AGREES: Final = 1e-5


def read_run(log_path: Path, source: CP2KSource) -> tuple[BlockMatrix, dict[str, Any]]:
    """Read the matrices of one run.

    Args:
        log_path: Output of the run; the other files lie beside it.
        source: Cutoff, basis and structure, where given.

    Returns:
        The matrices, in eV, and facts for the report, JSON-able.

    Raises:
        ValueError: A file is missing, damaged, or contradicts another.
    """
    log = read_log(log_path)
    structure = _read_structure(log_path, log, source)
    atoms = wrap_atoms(structure)
    symbols = [chemical_symbols[z] for z in atoms.atomic_numbers]
    shells = {symbol: tuple(own) for symbol, own in source.basis.items()} or log.shells
    log.require_fits(shells, symbols)
    if source.structure is None:
        log.require_input(structure)
    basis = Basis({symbol: shells[symbol] for symbol in dict.fromkeys(symbols)})
    files = _find_files(log_path, log)
    if not log.images:
        require_unfolded(atoms, source.cutoff)
    atom_pairs = find_pairs_within(atoms, source.cutoff)
    places = Places(atoms, basis, *atom_pairs)
    elements = {kind: _read_elements(files, log, kind, atoms, basis) for kind in ("KS", "S")}
    if log.images:
        _require_gamma_agrees(log_path, log, files, elements["S"])
    matrices = {kind: places.gather(elements[kind]) for kind in elements}
    asymmetry = matrices["KS"].asymmetry * HARTREE
    require_hermitian("hamiltonian", asymmetry)
    require_hermitian("overlap", matrices["S"].asymmetry)
    matrix = BlockMatrix(
        structure=atoms,
        basis=basis,
        block_atoms=atom_pairs[0],
        block_shift=atom_pairs[1],
        hamiltonian=matrices["KS"].entries * HARTREE,
        overlap=matrices["S"].entries,
    )
    facts = {
        "images": len(log.images["KS"]) if log.images else 1,
        "left_out_eV": matrices["KS"].left_out * HARTREE,
        "asymmetry_eV": asymmetry,
    }
    return matrix, facts


def wrap_atoms(atoms: Structure) -> Structure:
    """Move atoms into [-1/2, 1/2) of the periodic directions, as CP2K counts its images."""
    if not atoms.pbc.any():
        return atoms
    fractional = atoms.positions @ np.linalg.inv(atoms.cell)
    moved = np.trunc(fractional + np.copysign(0.5, fractional)) * atoms.pbc
    return replace(atoms, positions=atoms.positions - moved @ atoms.cell)


def _read_structure(log_path: Path, log: Log, source: CP2KSource) -> Structure:
    name = source.structure or log.input_name
    path = log_path.with_name(name)
    if not path.is_file():
        raise ValueError(
            f"{log_path}: the input {name}, from which cell and positions are read, is not beside "
            "it; put it there, or name it, or a restart file, by `structure` of the source"
        )
    try:
        return read_structure(path)
    except (ValueError, OSError, IndexError) as error:
        raise ValueError(f"{path}: its structure cannot be read: {error}") from error


def _find_files(log_path: Path, log: Log) -> dict[tuple[str, int], Path]:
    """Find the files by kind and number of the image, 0 for the Gamma point."""
    files: dict[tuple[str, int], Path] = {}
    for path in sorted(log_path.parent.glob(f"{log.project}-*.csr*")):
        match = _FILE.search(path.name)
        if match is None:
            continue
        key = match[1], int(match[3] or 0)
        if match[2] != "1":
            raise ValueError(
                f"{path}: spin-polarised matrices are not supported; run CP2K without UKS"
            )
        if key in files:
            raise ValueError(
                f"{path}: is a second file of the same matrix beside {files[key].name}; keep only "
                "the file of the last step"
            )
        files[key] = path
    return files


def _read_elements(
    files: dict[tuple[str, int], Path], log: Log, kind: str, atoms: Structure, basis: Basis
) -> Elements:
    """Read all images of one matrix."""
    n = int(basis.count_orbitals_per_atom(atoms.atomic_numbers).sum())
    images = list(enumerate(log.images.get(kind, []), 1))
    if not images:
        return _shift_to_nearest(read_csr(_get_file(files, log, kind, 0), n), atoms, basis)
    parts = [read_csr(_get_file(files, log, kind, number), n) for number, _ in images]
    shift = np.repeat([image for _, image in images], [len(row) for row, _, _ in parts], axis=0)
    row, column, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Elements(shift, row, column, value)


def _get_file(files: dict[tuple[str, int], Path], log: Log, kind: str, number: int) -> Path:
    if (kind, number) not in files:
        name = f"{log.project}-*{kind}_SPIN_1{f'_R_{number}' if number else ''}-1_*.csr"
        raise ValueError(
            f"there is no file {name} beside the output; print it with &DFT &PRINT &{_OPTION[kind]}"
        )
    return files[kind, number]


def _shift_to_nearest(
    matrix: tuple[NDArray[np.int64], NDArray[np.int64], Floats], atoms: Structure, basis: Basis
) -> Elements:
    """Assign each element of a matrix of the Gamma point to the nearest image of its column."""
    from ase.geometry import find_mic

    row, column, value = matrix
    counts = basis.count_orbitals_per_atom(atoms.atomic_numbers)
    atom = np.repeat(np.arange(len(counts)), counts)
    i, j = atom[row], atom[column]
    if not atoms.pbc.any():
        return Elements(np.zeros((len(row), 3), dtype=np.int64), row, column, value)
    # Both members of a pair must have opposite images, also where two are equally near.
    low, high = np.minimum(i, j), np.maximum(i, j)
    pairs, place = np.unique(low * len(counts) + high, return_inverse=True)
    low, high = np.divmod(pairs, len(counts))
    straight = atoms.positions[high] - atoms.positions[low]
    shortest, _ = find_mic(straight, atoms.cell, atoms.pbc)
    shift = np.rint((shortest - straight) @ np.linalg.inv(atoms.cell)).astype(np.int64)
    return Elements(shift[place] * np.where(i <= j, 1, -1)[:, None], row, column, value)


def _require_gamma_agrees(
    log_path: Path, log: Log, files: dict[tuple[str, int], Path], overlap: Elements
) -> None:
    """Check that the images add up to the overlap at the Gamma point, if its file exists."""
    if ("S", 0) not in files:
        return
    import scipy.sparse

    n = log.n_orbitals
    total = scipy.sparse.coo_array((overlap.value, (overlap.row, overlap.column)), (n, n)).tocsr()
    row, column, value = read_csr(files["S", 0], n)
    gamma = scipy.sparse.coo_array((value, (row, column)), (n, n)).tocsr()
    difference = float(abs(_keep_upper(total) - _keep_upper(gamma)).max())
    if difference > _GAMMA_AGREES:
        raise ValueError(
            f"{log_path}: the overlap summed over all images differs from {files['S', 0].name} by "
            f"up to {difference:.3g}; files of different runs are in one folder: separate them"
        )


def _keep_upper(matrix: Any) -> Any:
    import scipy.sparse

    return scipy.sparse.triu(matrix, format="csr")
