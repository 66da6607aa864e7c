"""Molecular dynamics with a calculator: trajectory, observables, and what they amount to."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator
from ase.md.md import MolecularDynamics as Integrator

from pipeline_core import store
from pipeline_core.config.sections import MolecularDynamics
from pipeline_core.inference.frames import Frames, store_rdf, summarize
from pipeline_core.inference.integrators import compute_temperature, draw_momenta, make_integrator

_TOO_HOT: Final = 50.0
"""Multiple of the wanted temperature at which a run has exploded."""
_TOO_DENSE: Final = 0.5
"""Å³ an atom below which a cell has collapsed; the import of data has the same limit."""


def run_dynamics(
    atoms: Atoms,
    calculator: Calculator,
    options: MolecularDynamics,
    seed: int,
    trajectory: Path,
    group: h5py.Group,
) -> dict[str, Any]:
    """Run molecular dynamics.

    Args:
        atoms: Start structure, left as it is; at least two atoms.
        calculator: Gives energy and forces, and the stress where there is a pressure.
        options: Ensemble, length, couplings.
        seed: Of the initial velocities and the thermostat.
        trajectory: The extended-XYZ file to write: positions, momenta, forces, energy, stress.
        group: Empty group of an HDF5 file, filled with `OBSERVABLES`, positions, cell,
            atomic_numbers and rdf; its attributes are the summary.

    Returns:
        The summary, see `summarize`.

    Raises:
        ValueError: The run exploded; the trajectory holds the frames until then.
    """
    with np.errstate(all="ignore"):  # what overflows stops the run, in words
        moving = _prepare_atoms(atoms, calculator, options)
        rng = np.random.default_rng([seed, *options.name.encode()])
        moving.set_momenta(draw_momenta(moving, options.temperature, rng))
        dynamics, conserved = make_integrator(moving, options, rng)
        started = time.perf_counter()
        with (
            store.write_atomic(trajectory) as temporary,
            temporary.open("w", encoding="utf-8") as file,
        ):
            frames = Frames(group, file, moving, 1 + options.steps // options.every)
            problem = _advance(dynamics, conserved, options, frames)
        if problem:
            raise ValueError(
                f"molecular dynamics {options.name!r}: stopped at step {dynamics.nsteps} of "
                f"{options.steps}: {problem}, {_describe_state(atoms, moving)}; "
                f"{_find_cure(atoms, moving, options)}; {trajectory} holds the frames until then"
            )
    seconds = (time.perf_counter() - started) / options.steps
    result = {**summarize(group, options), "seconds_per_step": seconds}
    group.attrs.update({key: value for key, value in result.items() if value is not None})
    if moving.pbc.all():
        store_rdf(group)
    return result


def _prepare_atoms(atoms: Atoms, calculator: Calculator, options: MolecularDynamics) -> Atoms:
    if len(atoms) < 2:
        raise ValueError(
            f"molecular dynamics {options.name!r}: one atom alone does not move relative to its "
            "centre of mass; repeat the cell with `repeat`"
        )
    if options.ensemble == "npt" and not atoms.pbc.all():
        raise ValueError(
            f"molecular dynamics {options.name!r}: npt needs a cell that is periodic in three "
            "directions; choose another ensemble"
        )
    if options.ensemble == "npt" and "stress" not in calculator.implemented_properties:
        raise ValueError(
            f"molecular dynamics {options.name!r}: npt needs the stress, which the model does not "
            "predict; choose another ensemble"
        )
    moving = atoms.copy()
    moving.calc = calculator
    try:
        moving.get_potential_energy()  # what is wrong with the start is told as such
    except ValueError as error:
        raise ValueError(
            f"molecular dynamics {options.name!r}: start {options.start!r}: {error}"
        ) from error
    return moving


def _advance(
    dynamics: Integrator,
    conserved: Callable[[], float],
    options: MolecularDynamics,
    frames: Frames,
) -> str | None:
    """Do all steps; return what stopped them, or None."""
    atoms = dynamics.atoms
    try:
        for step, _ in enumerate(dynamics.irun(options.steps)):
            temperature = _measure_temperature(atoms)
            energy = atoms.get_potential_energy()
            if not np.isfinite(energy):
                return f"the energy is {energy:g} eV"
            if not temperature <= _TOO_HOT * options.temperature:
                return f"{temperature:.3g} K where {options.temperature:g} K are wanted"
            if atoms.pbc.all() and atoms.cell.volume < _TOO_DENSE * len(atoms):
                return f"the cell has collapsed below {_TOO_DENSE:g} Å³ an atom"
            if step % options.every == 0:
                frames.add(atoms, step * options.timestep, temperature, conserved())
    except (ValueError, RuntimeError, ArithmeticError) as error:
        # The calculator, or ASE's matrices, meet a structure that has fallen apart.
        return str(error)
    return None


def _measure_temperature(atoms: Atoms) -> float:
    return compute_temperature(atoms.get_momenta(), atoms.get_masses()[:, None])


def _describe_state(start: Atoms, now: Atoms) -> str:
    """Return temperature and, of a cell, volume."""
    state = f"at {_measure_temperature(now):.3g} K"
    if not now.pbc.all():
        return state
    return f"{state} in {now.cell.volume:.3g} Å³ (at the start {start.cell.volume:.3g})"


def _find_cure(start: Atoms, now: Atoms, options: MolecularDynamics) -> str:
    ratio = now.cell.volume / start.cell.volume if options.ensemble == "npt" else 1.0
    if not 0.5 < ratio < 2.0:
        return (
            f"relax the start, raise barostat_damping (now {options.barostat_damping:g} fs), check "
            f"pressure ({options.pressure:g} GPa), or train the model on strained cells with stress"
        )
    return (
        f"the model is outside its data, or the time step of {options.timestep:g} fs is too long: "
        "1 fs suits most systems, 0.5 fs those with hydrogen"
    )
