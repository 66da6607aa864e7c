"""Equations of state: energy against volume."""

import warnings

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator
from ase.eos import EquationOfState
from scipy.optimize import OptimizeWarning

from pipeline_atoms.config.properties import EquationOfStateOptions
from pipeline_atoms.properties.findings import Findings, Scalar, as_array
from pipeline_atoms.properties.relaxation import prepare, relax_converged
from pipeline_core.units import GPA


def compute_equation_of_state(
    atoms: Atoms, calculator: Calculator, options: EquationOfStateOptions
) -> Findings:
    """Fit an equation of state to energies of scaled cells.

    The cell keeps its shape. Unless `relax` is null, atoms relax at each volume.

    Args:
        atoms: A crystal; it is relaxed first.
        calculator: The potential.
        options: Volumes and equation.

    Raises:
        ValueError: It is not a crystal, a relaxation fails, or there is no minimum within the
            volumes.
    """
    require_crystal(atoms)
    start = prepare(atoms, calculator, options.relax)
    width = options.volume_range
    ratios = np.linspace(1 - width, 1 + width, options.points)
    scaled = [scale_cell(start, np.eye(3) * ratio ** (1 / 3)) for ratio in ratios]
    if options.relax is not None and len(start) > 1:
        still = options.relax.model_copy(update={"cell": False})
        scaled = [relax_converged(one, calculator, still) for one in scaled]
    energies = as_array([calculator.get_property("energy", one) for one in scaled])
    volumes = as_array([one.cell.volume for one in scaled])
    return fit_volumes(volumes, energies, len(start), options.equation)


def fit_volumes(volumes: np.ndarray, energies: np.ndarray, n_atoms: int, equation: str) -> Findings:
    """Fit an equation of state.

    Args:
        volumes: (n_volumes,) Å³, ascending.
        energies: (n_volumes,) eV
        n_atoms: Number of atoms.
        equation: ASE's name of the equation.

    Raises:
        ValueError: The energies have no minimum within the volumes, or the fit fails.
    """
    lowest = int(energies.argmin())
    if lowest in (0, len(energies) - 1):
        side = "smallest" if lowest == 0 else "largest"
        raise ValueError(
            f"the energy is lowest at the {side} volume, {volumes[lowest] / n_atoms:.4g} Å³ an "
            "atom; relax the structure with its cell, or raise volume_range"
        )
    # Without an offset, total energies of thousands of eV would leave only rounding to the fit.
    above = energies - energies[lowest]
    fitted = EquationOfState(volumes, above, eos=equation)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", OptimizeWarning)
            volume, energy, modulus = fitted.fit(warn=False)
    except (RuntimeError, OptimizeWarning) as error:
        raise ValueError(f"equation {equation} does not fit: {error}; use another one") from error
    fine, curve = fitted.getplotdata()[4:6]
    rest = above - fitted.func(volumes, *fitted.eos_parameters)
    summary: dict[str, Scalar] = {
        "n_atoms": n_atoms,
        "equation": equation,
        "volume_per_atom_A3": float(volume) / n_atoms,
        "energy_per_atom_eV": float(energy + energies[lowest]) / n_atoms,
        "bulk_modulus_GPa": float(modulus) / GPA,
        "bulk_modulus_derivative": float(fitted.eos_parameters[2]),
        "rms_of_fit_meV_per_atom": 1000 * float(np.sqrt((rest**2).mean())) / n_atoms,
    }
    arrays = {
        "volumes": volumes / n_atoms,
        "energies": energies / n_atoms,
        "curve_volumes": fine / n_atoms,
        "curve_energies": as_array(curve + energies[lowest]) / n_atoms,
    }
    units = {n: "Å³/atom" if "volumes" in n else "eV/atom" for n in arrays}
    return Findings(summary, arrays, units)


def scale_cell(atoms: Atoms, deformation: np.ndarray) -> Atoms:
    """Map the vectors v of cell and atoms of a structure to v @ deformation (3, 3)."""
    scaled = atoms.copy()
    scaled.set_cell(np.array(atoms.cell) @ deformation, scale_atoms=True)
    return scaled


def require_crystal(atoms: Atoms) -> None:
    """Check that a structure is periodic in three directions.

    Raises:
        ValueError: It is not.
    """
    if not atoms.pbc.all():
        raise ValueError("is not periodic in three directions; give a crystal")
