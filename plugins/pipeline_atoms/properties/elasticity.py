"""Elastic constants from the stress of strained cells."""

from typing import Final

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator
from ase.stress import voigt_6_to_full_3x3_strain
from numpy.typing import NDArray
from pymatgen.analysis.elasticity.elastic import ElasticTensor

from pipeline_atoms.config.properties import ElasticOptions
from pipeline_atoms.properties.equation_of_state import require_crystal, scale_cell
from pipeline_atoms.properties.findings import Findings
from pipeline_atoms.properties.relaxation import free_atoms, prepare, relax_converged
from pipeline_core.units import GPA

Floats = NDArray[np.float64]

CONSTANTS: Final = ((0, 0), (0, 1), (0, 2), (2, 2), (3, 3), (5, 5))
"""Rows and columns of named constants: all of a cubic to tetragonal crystal."""


def compute_elastic_constants(
    atoms: Atoms, calculator: Calculator, options: ElasticOptions
) -> Findings:
    """Compute C_ij = dσ_i / dε_j by central differences, and polycrystalline moduli.

    The axes are those of the structure. Averages over directions are those of Voigt, Reuss and
    Hill, as implemented in pymatgen.

    Args:
        atoms: A crystal; it is relaxed first.
        calculator: The potential, with stress.
        options: Size of the strains.

    Raises:
        ValueError: It is not a crystal, there is no stress, or a relaxation fails.
    """
    require_crystal(atoms)
    if "stress" not in calculator.implemented_properties:
        raise ValueError("the model predicts no stress; use a model that does")
    start = prepare(atoms, calculator, options.relax)
    columns = [_differentiate(start, calculator, options, column) for column in range(6)]
    rough = np.stack(columns, axis=1) / GPA
    constants = (rough + rough.T) / 2
    eigenvalues = np.linalg.eigvalsh(constants)
    stable = bool(eigenvalues[0] > 0)
    named = {f"C{i + 1}{j + 1}_GPa": float(constants[i, j]) for i, j in CONSTANTS}
    summary = {
        "n_atoms": len(start),
        **named,
        **_average(constants, stable),
        "asymmetry_GPa": float(np.abs(rough - rough.T).max()),
        "stable": stable,
    }
    arrays = {"constants": constants, "eigenvalues": eigenvalues}
    return Findings(summary, arrays, dict.fromkeys(arrays, "GPa"))


def _differentiate(
    start: Atoms, calculator: Calculator, options: ElasticOptions, column: int
) -> Floats:
    """Differentiate the stress by one strain in Voigt's notation, (6,)."""
    stresses = []
    for sign in (-1, 1):
        # For a shear, the requested size is the strain in Voigt's notation, γ = 2 ε.
        strain = sign * options.strain * np.eye(6)[column]
        strained = scale_cell(start, voigt_6_to_full_3x3_strain(strain))
        if options.relax is not None and len(start) > 1:
            strained = relax_converged(strained, calculator, free_atoms(options.relax))
        stresses.append(np.array(calculator.get_property("stress", strained)))
    change: Floats = (stresses[1] - stresses[0]) / (2 * options.strain)
    return change


def _average(constants: Floats, stable: bool) -> dict[str, float | None]:
    """Return moduli of a polycrystal; None if the crystal is not stable."""
    names = ("bulk_modulus_GPa", "shear_modulus_GPa", "young_modulus_GPa", "poisson_ratio")
    if not stable:
        return dict.fromkeys((*names, "universal_anisotropy"))
    tensor = ElasticTensor.from_voigt(constants)
    return {
        "bulk_modulus_GPa": float(tensor.k_vrh),
        "shear_modulus_GPa": float(tensor.g_vrh),
        "young_modulus_GPa": float(tensor.y_mod) / 1e9,
        "poisson_ratio": float(tensor.homogeneous_poisson),
        "universal_anisotropy": float(tensor.universal_anisotropy),
    }
