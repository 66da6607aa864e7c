"""Relaxation of structures by ASE's optimizers, with a summary of the result."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator
from ase.constraints import FixSymmetry
from ase.filters import FrechetCellFilter
from ase.optimize import FIRE, LBFGS
from ase.spacegroup.symmetrize import check_symmetry

from pipeline_atoms.config.properties import Relaxation, RelaxOptions
from pipeline_atoms.properties.findings import Findings
from pipeline_core.units import GPA

_OPTIMIZERS: Final = {"lbfgs": LBFGS, "fire": FIRE}
_MOST_STRETCHED: Final = 2.0
"""Ratio of volumes, or its inverse, beyond which the relaxation of a cell has failed."""

_CELL: Final = ("a_A", "b_A", "c_A", "alpha_deg", "beta_deg", "gamma_deg")


@dataclass(frozen=True)
class Relaxed:
    """Result of a relaxation.

    Attributes:
        atoms: The structure with the calculator, and without constraints.
        steps: Number of steps.
        converged: True if forces and stress are within the limits of the options.
        max_force: Largest force, eV/Å.
    """

    atoms: Atoms
    steps: int
    converged: bool
    max_force: float


def relax(atoms: Atoms, calculator: Calculator, options: Relaxation) -> Relaxed:
    """Relax a structure.

    Args:
        atoms: The start; it is not changed.
        calculator: Gives energy and forces, and the stress if the cell relaxes.
        options: Optimizer, limits and constraints.

    Raises:
        ValueError: The structure cannot be relaxed with these options, or flew apart.
    """
    moving = atoms.copy()
    moving.calc = calculator
    if options.cell:
        _require_stress(atoms, calculator)
    moving.get_potential_energy()  # reports errors of the start as such
    with _explain(atoms, moving), quiet():
        if options.symmetry and moving.pbc.all():
            moving.set_constraint(
                [*moving.constraints, FixSymmetry(moving, symprec=options.symmetry_tolerance)]
            )
        target = (
            FrechetCellFilter(moving, scalar_pressure=options.pressure * GPA)
            if options.cell
            else moving
        )
        optimizer = _OPTIMIZERS[options.optimizer](target, logfile=None)
        converged = False
        for settled in optimizer.irun(fmax=options.max_force, steps=options.steps):
            converged = settled and _is_at_rest(moving, options)
            _require_sound(atoms, moving)
    moving.set_constraint()
    largest = float(np.linalg.norm(moving.get_forces(), axis=1).max())
    return Relaxed(moving, optimizer.nsteps, bool(converged), largest)


def relax_converged(atoms: Atoms, calculator: Calculator, options: Relaxation) -> Atoms:
    """Relax a structure, and require convergence.

    Raises:
        ValueError: As `relax` does, or it is not converged after the last step.
    """
    relaxed = relax(atoms, calculator, options)
    if not relaxed.converged:
        raise ValueError(
            f"not relaxed after {relaxed.steps} steps (largest force {relaxed.max_force:.3g} "
            f"eV/Å); raise relax.steps or relax.max_force, or set relax.optimizer: "
            f"{'fire' if options.optimizer == 'lbfgs' else 'lbfgs'}"
        )
    return relaxed.atoms


def prepare(atoms: Atoms, calculator: Calculator, options: Relaxation | None) -> Atoms:
    """Attach the calculator to a structure, and relax it if the options require it.

    Raises:
        ValueError: As `relax_converged` does.
    """
    if options is None:
        ready = atoms.copy()
        ready.calc = calculator
        return ready
    return relax_converged(atoms, calculator, options)


def free_atoms(options: Relaxation) -> Relaxation:
    """Return options to relax the atoms alone, which may leave their symmetry."""
    return options.model_copy(update={"cell": False, "symmetry": False})


def compute_relaxation(atoms: Atoms, calculator: Calculator, options: RelaxOptions) -> Findings:
    """Relax a structure, and summarize the result.

    Raises:
        ValueError: As `relax` does.
    """
    assert options.relax is not None
    relaxed = relax(atoms, calculator, options.relax)
    now = relaxed.atoms
    tolerance = options.relax.symmetry_tolerance
    energy = float(now.get_potential_energy())
    gained = float(calculator.get_property("energy", atoms)) - energy
    three = now.pbc.all()
    summary = {
        "n_atoms": len(now),
        "converged": relaxed.converged,
        "steps": relaxed.steps,
        "max_force_eV_per_A": relaxed.max_force,
        "energy_per_atom_eV": energy / len(now),
        "energy_gained_per_atom_eV": gained / len(now),
        "space_group_before": name_space_group(atoms, tolerance) if three else None,
        "space_group": name_space_group(now, tolerance) if three else None,
        "volume_per_atom_A3": float(now.cell.volume) / len(now) if three else None,
        "volume_change": float(now.cell.volume / atoms.cell.volume) - 1 if three else None,
        **(dict(zip(_CELL, now.cell.cellpar().tolist(), strict=True)) if three else {}),
    }
    arrays = {
        "atomic_numbers": now.numbers,
        "positions": now.positions,
        "cell": np.array(now.cell),
        "cell_before": np.array(atoms.cell),
    }
    return Findings(summary, arrays, dict.fromkeys(("positions", "cell", "cell_before"), "Å"))


def name_space_group(atoms: Atoms, tolerance: float) -> str:
    """Return the symbol and the number of the space group."""
    found = check_symmetry(atoms, tolerance)
    return f"{found.international} ({found.number})"


def _require_stress(atoms: Atoms, calculator: Calculator) -> None:
    if not atoms.pbc.all():
        raise ValueError("a cell relaxes in three periodic directions only; set relax.cell: false")
    if "stress" not in calculator.implemented_properties:
        raise ValueError("the model predicts no stress to relax the cell; set relax.cell: false")


def _is_at_rest(atoms: Atoms, options: Relaxation) -> bool:
    """Return True if the stress has vanished too: a filter scales it by the size of the cell."""
    if not options.cell:
        return True
    excess = atoms.get_stress(voigt=False) + options.pressure * GPA * np.eye(3)
    return bool(np.abs(excess).max() <= options.max_force)


def _require_sound(start: Atoms, now: Atoms) -> None:
    if not np.isfinite(now.positions).all():
        raise ValueError("coordinates are not finite")
    if now.pbc.all():
        ratio = now.cell.volume / start.cell.volume
        if not 1 / _MOST_STRETCHED < ratio < _MOST_STRETCHED:
            raise ValueError(f"the volume became {ratio:.2g} times that of the start")


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings of ASE about problems that the result reports."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.filterwarnings("ignore", "FixSymmetry adjust_cell")
        warnings.filterwarnings("ignore", message="logm result may be inaccurate")
        yield


@contextmanager
def _explain(start: Atoms, now: Atoms) -> Iterator[None]:
    """Raise errors of a relaxation with a remedy."""
    try:
        yield
    except (ValueError, RuntimeError, ArithmeticError, np.linalg.LinAlgError) as error:
        moved = np.linalg.norm(now.positions - start.positions, axis=1).max()
        raise ValueError(
            f"the relaxation flew apart: {error} (atoms moved by up to {moved:.2g} Å); the model "
            "is outside its data: set relax.cell: false, set relax.optimizer: fire, start closer "
            "to the minimum, or train on strained and displaced structures"
        ) from error
