"""Conversion of atomic positions to the variables of a surface and back.

The functions of positions are differentiable twice, so that forces and Hessians follow by autograd.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline_core.units import find_factor
from pipeline_htfbr.data.molecule import Internal, Molecule, NormalModes
from pipeline_htfbr.data.points import Coordinate

Floats = NDArray[np.float64]

STRAIGHT = 1e-6
"""Sine of an angle below which its derivative, or a dihedral angle at it, is undefined."""
_PATH_STEPS = 8
_NEWTON_STEPS = 50


def compute_variables(
    positions: Tensor, molecule: Molecule, coordinates: Sequence[Coordinate]
) -> Tensor:
    """Return the variables of a surface at a geometry.

    Dihedral angles lie in (-180°, 180°], their sign as in ASE; normal coordinates refer to the
    Eckart frame. Differentiable twice.

    Args:
        positions: (n_atoms, 3) Å, float64.
        molecule: Definition of the variables.
        coordinates: Units of the variables.

    Returns:
        (d,) in the units of the coordinates.

    Raises:
        ValueError: Atoms coincide, or an angle is straight where it must not be.
    """
    if isinstance(molecule.variables, NormalModes):
        return _compute_normal_coordinates(positions, molecule, molecule.variables)
    values = []
    for one, coordinate in zip(molecule.variables, coordinates, strict=True):
        values.append(
            _compute_internal(positions, one, coordinate.name) / _find_unit(one, coordinate.unit)
        )
    return torch.stack(values)


def differentiate_variables(
    positions: Floats, molecule: Molecule, coordinates: Sequence[Coordinate]
) -> tuple[Floats, Floats]:
    """Return the variables, (d,), and their derivatives by the positions, (d, 3 n_atoms) 1/Å."""
    place = torch.as_tensor(positions, dtype=torch.float64).requires_grad_()
    values = compute_variables(place, molecule, coordinates)
    rows = [torch.autograd.grad(value, place, retain_graph=True)[0] for value in values]
    return values.detach().numpy(), torch.stack(rows).flatten(1).numpy()


def find_positions(x: Floats, molecule: Molecule, coordinates: Sequence[Coordinate]) -> Floats:
    """Return a geometry at which the variables have given values, (n_atoms, 3) Å.

    Internal coordinates are followed from the reference in small steps, each by Newton's method
    with the least displacement of the atoms.

    Raises:
        ValueError: No geometry on this path has these values.
    """
    reference = np.array(molecule.reference)
    if isinstance(molecule.variables, NormalModes):
        modes = np.array(molecule.variables.displacements)  # (d, n_atoms, 3)
        moved: Floats = reference + np.einsum("k,kai->ai", x, modes)
        return moved
    start, _ = differentiate_variables(reference, molecule, coordinates)
    way = _shorten(np.asarray(x) - start, coordinates)
    positions: Floats = reference
    for part in np.linspace(0, 1, _PATH_STEPS + 1)[1:]:
        solution = _solve(start + part * way, positions, molecule, coordinates)
        if solution is None:
            names = ", ".join(f"{c.name} {v:.6g}" for c, v in zip(coordinates, x, strict=True))
            raise ValueError(f"no geometry of the molecule was found that has {names}")
        positions = solution
    return positions


def _solve(
    target: Floats, positions: Floats, molecule: Molecule, coordinates: Sequence[Coordinate]
) -> Floats | None:
    """Find positions of given coordinates by Newton steps; None if they do not converge."""
    for _ in range(_NEWTON_STEPS):
        values, by_positions = differentiate_variables(positions, molecule, coordinates)
        missing = _shorten(target - values, coordinates)
        if np.abs(missing).max() < 1e-11 * (1 + np.abs(target).max()):
            return positions
        step = np.linalg.lstsq(by_positions, missing, rcond=1e-10)[0]
        positions = np.add(positions, step.reshape(-1, 3))
    return None


def _shorten(difference: Floats, coordinates: Sequence[Coordinate]) -> Floats:
    """Return differences of variables, for periodic ones the shorter way round."""
    periods = np.array([c.period or 0.0 for c in coordinates])
    turns = np.round(difference / np.where(periods, periods, np.inf))
    shortest: Floats = difference - turns * periods
    return shortest


def _find_unit(one: Internal, unit: str) -> float:
    if one.kind == "cosine":
        return 1.0
    return find_factor("length" if one.kind == "distance" else "angle", unit)


def _compute_internal(positions: Tensor, one: Internal, name: str) -> Tensor:
    atoms = [positions[i] for i in one.atoms]
    if one.kind == "distance":
        return _compute_length(atoms[1] - atoms[0], name)
    if one.kind == "dihedral":
        return _compute_dihedral(
            atoms[1] - atoms[0], atoms[2] - atoms[1], atoms[3] - atoms[2], name
        )
    a, b = atoms[0] - atoms[1], atoms[2] - atoms[1]
    lengths = _compute_length(a, name) * _compute_length(b, name)
    if one.kind == "cosine":
        return a @ b / lengths
    return torch.atan2(_compute_normal(a, b, name).norm(), a @ b)


def _compute_dihedral(a: Tensor, b: Tensor, c: Tensor, name: str) -> Tensor:
    first, second = _compute_normal(a, b, name), _compute_normal(b, c, name)
    return torch.atan2(_compute_length(b, name) * (a @ second), first @ second)


def _compute_length(vector: Tensor, name: str) -> Tensor:
    length: Tensor = vector.norm()
    if float(length.detach()) < STRAIGHT:
        raise ValueError(f"coordinate {name}: two of its atoms lie at the same place")
    return length


def _compute_normal(a: Tensor, b: Tensor, name: str) -> Tensor:
    """Return the cross product of two vectors that must not be parallel."""
    normal: Tensor = torch.linalg.cross(a, b)
    sine = normal.detach().norm() / (_compute_length(a, name) * _compute_length(b, name)).detach()
    if float(sine) < STRAIGHT:
        raise ValueError(
            f"coordinate {name}: three of its atoms lie on a line, where it has no derivative; "
            "move an atom off the line"
        )
    return normal


def _compute_normal_coordinates(
    positions: Tensor, molecule: Molecule, modes: NormalModes
) -> Tensor:
    masses = positions.new_tensor(molecule.masses)[:, None]  # (n_atoms, 1)
    reference = _subtract_center_of_mass(positions.new_tensor(molecule.reference), masses)
    displaced = (
        _rotate_to_eckart(_subtract_center_of_mass(positions, masses), reference, masses)
        - reference
    )
    weighted = positions.new_tensor(modes.displacements) * masses.sqrt()  # (d, n_atoms, 3)
    coordinates: Tensor = (
        torch.linalg.pinv(weighted.flatten(1)).T @ (masses.sqrt() * displaced).flatten()
    )
    return coordinates


def _subtract_center_of_mass(positions: Tensor, masses: Tensor) -> Tensor:
    return positions - (masses * positions).sum(0) / masses.sum()


def _rotate_to_eckart(positions: Tensor, reference: Tensor, masses: Tensor) -> Tensor:
    """Rotate such that sum m reference × positions = 0, by least squares of the displacements.

    The rotation is computed without derivatives (W. Kabsch, Acta Cryst. A32, 922 (1976)), since
    the singular value decomposition has none for symmetric or planar molecules. Newton steps
    for the Eckart condition from there leave the value unchanged; two give the derivatives up
    to the third.
    """
    with torch.no_grad():
        left, _, right = torch.linalg.svd((masses * reference).T @ positions)
        sign = torch.det(left) * torch.det(right)
        rotation = left @ torch.diag(torch.stack([sign**0, sign**0, sign])) @ right
    rotated: Tensor = positions @ rotation.T
    for _ in range(2):
        torque = (masses * torch.linalg.cross(reference, rotated)).sum(0)
        product = (masses * rotated).T @ reference  # (3, 3)
        inertia = product.trace() * torch.eye(3, dtype=product.dtype) - product
        x, y, z = torch.linalg.solve(inertia, -torque)
        nil = torch.zeros_like(x)
        rows = [torch.stack(row) for row in ((nil, -z, y), (z, nil, -x), (-y, x, nil))]
        rotated = rotated @ torch.matrix_exp(torch.stack(rows)).T
    return rotated
