"""Energy levels of a Hamiltonian in a non-orthogonal basis: H(k) c = ε S(k) c.

H(k) = Σ_R H(R) exp(2πi k·R) with k in units of the reciprocal lattice vectors, and S(k) likewise.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from pipeline_egnn_esp.data.matrices import BlockMatrix

Floats = NDArray[np.float64]


def _assemble(matrix: BlockMatrix, k: Floats) -> Iterator[list[scipy.sparse.csr_array]]:
    """Yield H(k), eV, and S(k) at each k; real at Gamma, (n_orbitals, n_orbitals) each."""
    places, shape = matrix.find_entry_orbitals(), (matrix.n_orbitals, matrix.n_orbitals)
    n_entries = matrix.shapes.prod(axis=1)
    # A block on the diagonal is its own partner, which is added below.
    weights = np.where(matrix.is_on_site, 0.5, 1.0)
    for point in k:
        phases = np.exp(2j * np.pi * (matrix.block_shift @ point)) if point.any() else 1.0
        factors, both = np.repeat(weights * phases, n_entries), []
        for entries in (matrix.hamiltonian, matrix.overlap):
            half = scipy.sparse.coo_array((entries * factors, places), shape=shape).tocsr()
            both.append((half + half.conj().T).tocsr())
        yield both


def compute_levels(matrix: BlockMatrix, k: ArrayLike = (0.0, 0.0, 0.0)) -> Floats:
    """Return all levels at one or several k.

    Args:
        matrix: Real-space matrices.
        k: (3,) or (n_k, 3) in reciprocal lattice vectors.

    Returns:
        (n_orbitals,) or (n_k, n_orbitals), eV, ascending.

    Raises:
        ValueError: The overlap is not positive definite.
    """
    points = np.asarray(k, dtype=np.float64)
    energies = [_solve_levels(*both) for both in _assemble(matrix, points.reshape(-1, 3))]
    return np.array(energies).reshape(*points.shape[:-1], -1)


def _solve_levels(H: scipy.sparse.csr_array, S: scipy.sparse.csr_array) -> Floats:
    try:
        energies: Floats = scipy.linalg.eigh(H.toarray(), S.toarray(), eigvals_only=True)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"the overlap is not positive definite ({error}): it is cut off at too short a "
            "distance, or a model predicts it badly; use a larger cutoff, or the program's overlap"
        ) from error
    return energies


def compute_levels_near(
    matrix: BlockMatrix, energy: float, n: int, k: ArrayLike = (0.0, 0.0, 0.0)
) -> Floats:
    """Return the levels nearest to an energy, for structures too large for all of them.

    Args:
        matrix: Real-space matrices.
        energy: eV, not equal to any of the levels.
        n: Number of levels, less than the number of orbitals.
        k: (3,) in reciprocal lattice vectors.

    Returns:
        (n,) eV, ascending.
    """
    from scipy.sparse.linalg import eigsh

    ((H, S),) = _assemble(matrix, np.asarray(k, dtype=np.float64)[None])
    # A fixed start, since ARPACK takes a random one otherwise.
    start = np.ones(H.shape[0], dtype=H.dtype)
    energies = eigsh(
        H.tocsc(), n, S.tocsc(), sigma=energy, v0=start, return_eigenvectors=False, tol=1e-10
    )
    return np.sort(energies.real)


def compute_density_of_states(energies: ArrayLike, grid: ArrayLike, width: float) -> Floats:
    """Return the density of states as a sum of Gaussians.

    Args:
        energies: Levels, eV, (n_k, n_levels).
        grid: Energies at which the density is evaluated, eV, (n_grid,).
        width: Standard deviation of a Gaussian, eV.

    Returns:
        States per eV and cell, without the factor 2 of the spin, (n_grid,).
    """
    energies, grid = np.atleast_2d(np.asarray(energies)), np.asarray(grid)
    density, share = np.zeros(len(grid)), 1 / len(energies)
    for own in energies:
        density += share * np.exp(-0.5 * ((grid[:, None] - own) / width) ** 2).sum(axis=1)
    density /= width * np.sqrt(2 * np.pi)
    return density


def make_band_path(matrix: BlockMatrix, n_points: int, path: str | None = None) -> Any:
    """Return a path through the special points of the lattice as `ase.dft.kpoints.BandPath`.

    Args:
        matrix: Matrices of the structure.
        n_points: Points along it.
        path: Names of special points, such as "GXMG"; null for the one that ASE proposes.

    Raises:
        ValueError: A name is unknown.
    """
    from ase.cell import Cell

    try:
        return Cell(matrix.structure.cell).bandpath(
            path, npoints=n_points, pbc=matrix.structure.pbc
        )
    except KeyError as error:
        raise ValueError(f"bands: the lattice has no special point {error}") from error
