"""Source `pyscf`: molecules whose matrices are calculated here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline_atoms.structure import Structure
from pipeline_core.units import HARTREE
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.datasets import PySCFSource
from pipeline_egnn_esp.data.matrices import BlockMatrix, find_pairs_within
from pipeline_egnn_esp.data.orders import order_orbitals

if TYPE_CHECKING:
    import ase


def require_pyscf() -> None:
    """Check that PySCF is installed.

    Raises:
        ValueError: It is not.
    """
    try:
        import pyscf  # noqa: F401
    except ImportError as error:
        raise ValueError(
            "source pyscf needs PySCF, which is not installed: pip install "
            "'pipeline-core[quantum-chemistry]'"
        ) from error


def calculate_file(path: Path, source: PySCFSource) -> Iterator[tuple[int, BlockMatrix]]:
    """Calculate all structures of a file.

    Args:
        path: A file that ASE reads.
        source: Method.

    Yields:
        Number of the structure in the file, and its matrices.

    Raises:
        ValueError: PySCF is missing, the file cannot be read, a frame is periodic or charged,
            or a calculation does not converge.
    """
    require_pyscf()
    import ase.io

    try:
        frames = ase.io.read(path, index=":")
    except (
        OSError,
        ValueError,
        KeyError,
        StopIteration,
        ase.io.formats.UnknownFileTypeError,
    ) as error:
        raise ValueError(f"{path}: cannot be read ({error}); write it again") from error
    for number, atoms in enumerate(frames):
        _require_neutral_molecule(atoms, f"{path}, frame {number}")
        structure = Structure(
            np.asarray(atoms.numbers, dtype=np.int32),
            np.asarray(atoms.positions, dtype=np.float64),
            np.zeros((3, 3)),
            np.zeros(3, dtype=bool),
        )
        try:
            yield number, calculate(structure, source)
        except (RuntimeError, ValueError, KeyError) as error:
            raise ValueError(
                f"{path}, frame {number}: cannot be calculated with PySCF ({error}); correct the "
                "structure or choose another basis set"
            ) from error


def _require_neutral_molecule(atoms: ase.Atoms, place: str) -> None:
    if atoms.pbc.any():
        raise ValueError(
            f"{place}: is periodic, but source pyscf calculates molecules; calculate it with CP2K, "
            "or remove its cell"
        )
    if charge := atoms.info.get("charge", 0):
        raise ValueError(
            f"{place}: has the charge {charge:g}, but source pyscf calculates neutral molecules; "
            "remove the frame"
        )


def calculate(structure: Structure, source: PySCFSource) -> BlockMatrix:
    """Calculate one molecule by density fitting, restricted to closed shells.

    Args:
        structure: The molecule; odd numbers of electrons make PySCF raise RuntimeError.
        source: Basis set, functional and grid.

    Raises:
        ValueError: The self-consistency loop does not converge.
    """
    from pyscf import dft, gto

    atoms = [
        (int(z), tuple(r))
        for z, r in zip(structure.atomic_numbers, structure.positions.tolist(), strict=True)
    ]
    molecule = gto.M(atom=atoms, basis=source.basis, unit="Angstrom", verbose=0)
    field = dft.RKS(molecule, xc=source.functional).density_fit()
    field.grids.level = source.grid
    field.conv_tol = 1e-10
    field.kernel()
    if not field.converged:
        raise ValueError("the self-consistency loop does not converge")
    shells = [_list_shells(molecule, i) for i in range(molecule.natm)]
    symbols = [molecule.atom_pure_symbol(i) for i in range(molecule.natm)]
    basis = Basis(dict(zip(symbols, shells, strict=True)))
    block_atoms, block_shift = _pair_all(structure)
    orders = [order_orbitals(own, "pyscf") for own in shells]
    begins = molecule.aoslice_by_atom()[:, 2]

    def list_entries(matrix: Any) -> np.ndarray:
        parts = [
            matrix[np.ix_(begins[i] + orders[i], begins[j] + orders[j])].ravel()
            for i, j in block_atoms
        ]
        return np.concatenate(parts)

    return BlockMatrix(
        structure=structure,
        basis=basis,
        block_atoms=block_atoms,
        block_shift=block_shift,
        hamiltonian=list_entries(field.get_fock()) * HARTREE,
        overlap=list_entries(field.get_ovlp()),
    )


def _list_shells(molecule: Any, atom: int) -> tuple[int, ...]:
    """Return the degree of each contracted shell of an atom, in PySCF's order."""
    numbers = molecule.atom_shell_ids(atom)
    return tuple(int(molecule.bas_angular(n)) for n in numbers for _ in range(molecule.bas_nctr(n)))


def _pair_all(structure: Structure) -> tuple[np.ndarray, np.ndarray]:
    span = np.linalg.norm(np.ptp(structure.positions, axis=0))
    if len(structure.positions) == 1:
        return np.zeros((1, 2), dtype=np.int64), np.zeros((1, 3), dtype=np.int64)
    return find_pairs_within(structure, 1.01 * float(span))
