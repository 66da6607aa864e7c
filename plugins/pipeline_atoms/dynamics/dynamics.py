"""Molecular dynamics with a calculator: trajectory, observables and their summary."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator
from ase.md.md import MolecularDynamics as Integrator
from numpy.random import Generator

from pipeline_atoms.calculators.calculator import PotentialCalculator
from pipeline_atoms.calculators.committee import Committee
from pipeline_atoms.config.dynamics import MolecularDynamics, UncertaintyLimits
from pipeline_atoms.dynamics.diffusion import store_diffusion
from pipeline_atoms.dynamics.frames import (
    Frames,
    knows_uncertainty,
    read_uncertainty,
    store_rdf,
    summarize,
    summarize_uncertainty,
)
from pipeline_atoms.dynamics.integrators import (
    capture_state,
    compute_temperature,
    draw_momenta,
    make_integrator,
    restore_state,
)
from pipeline_atoms.dynamics.restarts import Restart, Restarts, identify

_TOO_HOT: Final = 50.0
"""Multiple of the target temperature from which on a run counts as exploded."""
_TOO_DENSE: Final = 0.5
"""Volume per atom below which a cell has collapsed, Å³; the import has the same limit."""


def run_dynamics(
    atoms: Atoms,
    calculator: Calculator,
    options: MolecularDynamics,
    seed: int,
    trajectory: Path,
    group: h5py.Group,
    model: str = "",
) -> dict[str, Any]:
    """Run molecular dynamics, or resume an interrupted run with the same settings.

    Restart files lie in a folder beside the trajectory; `remove_restarts` removes them.

    Args:
        atoms: Start structure, left as it is; at least two atoms.
        calculator: Gives energy and forces, and the stress for constant pressure.
        options: Ensemble, length, couplings.
        seed: Seed of the initial velocities and the thermostat.
        trajectory: The extended-XYZ file to write: positions, momenta, forces, energy, stress.
        group: Empty group of an HDF5 file, filled with `OBSERVABLES`, positions, cell,
            atomic_numbers, rdf and diffusion; its attributes are the summary.
        model: Identifier of the model, such as its SHA-256: a run resumes only with the same model.

    Returns:
        The summary, see `summarize`.

    Raises:
        ValueError: The run exploded; the trajectory holds the frames before.
    """
    with np.errstate(all="ignore"):  # an overflow stops the run with an error message
        moving = _prepare_atoms(atoms, calculator, options)
        rng = np.random.default_rng([seed, *options.name.encode()])
        moving.set_momenta(draw_momenta(moving, options.temperature, rng))
        dynamics, conserved = make_integrator(moving, options, rng)
        restarts = Restarts(_name_folder(trajectory), identify(atoms, options, seed, model))
        done = 0
        if restarts.last is not None:
            done = _go_on(dynamics, options, rng, restarts.last)
        started = time.perf_counter()
        problem = _advance(dynamics, conserved, options, rng, restarts)
        restarts.join(group, trajectory)
        if problem:
            remove_restarts(trajectory)
            raise ValueError(
                f"molecular dynamics {options.name!r}: stopped at step {dynamics.nsteps} of "
                f"{options.steps}: {problem}, {_describe_state(atoms, moving)}; "
                f"{_find_cure(atoms, moving, options)}; {trajectory} holds the frames until then"
            )
    seconds = (time.perf_counter() - started) / max(1, dynamics.nsteps - done)
    result = {
        **summarize(group, options),
        "steps": dynamics.nsteps,
        "seconds_per_step": seconds,
        **_describe_uncertainty(group, calculator, options, dynamics.nsteps),
    }
    if moving.pbc.all():
        store_rdf(group)
        result |= store_diffusion(group)
    group.attrs.update({key: value for key, value in result.items() if value is not None})
    return result


def _describe_uncertainty(
    group: h5py.Group, calculator: Calculator, options: MolecularDynamics, n_steps: int
) -> dict[str, Any]:
    """Return the uncertainty part of the summary of a committee run; empty for other runs."""
    if not knows_uncertainty(calculator):
        return {}
    limits = options.uncertainty or UncertaintyLimits()
    limit = limits.flag_above or calculator.calibrations["forces"].trusted
    stopped = n_steps if n_steps < options.steps else None
    return summarize_uncertainty(group, limit) | {"stopped_at_step": stopped}


def remove_restarts(trajectory: Path) -> None:
    """Remove the restart files of the run of a trajectory."""
    shutil.rmtree(_name_folder(trajectory), ignore_errors=True)


def _name_folder(trajectory: Path) -> Path:
    return trajectory.with_name(f".{trajectory.stem}.restart")


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
    _forget(calculator)
    try:
        moving.get_potential_energy()  # reports errors of the start structure as such
    except ValueError as error:
        raise ValueError(
            f"molecular dynamics {options.name!r}: start {options.start!r}: {error}"
        ) from error
    return moving


def _go_on(
    dynamics: Integrator, options: MolecularDynamics, rng: Generator, restart: Restart
) -> int:
    """Restore a run; return the number of completed steps."""
    rng.bit_generator.state = json.loads(restart.generator)
    restore_state(dynamics, options, restart.arrays, restart.step)
    _forget(dynamics.atoms.calc)
    return restart.step


def _forget(calculator: Calculator) -> None:
    """Make the following steps depend only on the present positions."""
    calculator.reset()
    if isinstance(calculator, PotentialCalculator | Committee):
        calculator.forget()


def _advance(
    dynamics: Integrator,
    conserved: Callable[[], float],
    options: MolecularDynamics,
    rng: Generator,
    restarts: Restarts,
) -> str | None:
    """Do all steps, in segments; return the reason of an early stop, or None."""
    if restarts.last is not None and dynamics.nsteps == options.steps:
        return None
    steps = iter(dynamics.irun(options.steps - dynamics.nsteps))
    if restarts.last is not None:
        next(steps)  # the final state of the last segment
    while True:
        with restarts.write_segment() as (group, text), text.open("w", encoding="utf-8") as file:
            frames = Frames(group, file, dynamics.atoms)
            problem = _advance_segment(steps, dynamics, conserved, options, frames)
        if problem or _is_too_uncertain(dynamics.atoms, options):
            return problem
        arrays = capture_state(dynamics, options)
        generator = json.dumps(rng.bit_generator.state)
        restarts.save(Restart(dynamics.nsteps, generator, arrays))
        if dynamics.nsteps == options.steps:
            return None
        _forget(dynamics.atoms.calc)


def _advance_segment(
    steps: Iterator[bool],
    dynamics: Integrator,
    conserved: Callable[[], float],
    options: MolecularDynamics,
    frames: Frames,
) -> str | None:
    """Do steps up to the next restart or the end; return the reason of an early stop, or None."""
    atoms = dynamics.atoms
    try:
        for _ in steps:
            step, temperature = dynamics.nsteps, _measure_temperature(atoms)
            energy = atoms.get_potential_energy()
            if not np.isfinite(energy):
                return f"the energy is {energy:g} eV"
            if not temperature <= _TOO_HOT * options.temperature:
                return f"{temperature:.3g} K where {options.temperature:g} K are wanted"
            if atoms.pbc.all() and atoms.cell.volume < _TOO_DENSE * len(atoms):
                return f"the cell has collapsed below {_TOO_DENSE:g} Å³ an atom"
            too_uncertain = _is_too_uncertain(atoms, options)
            if step % options.every == 0 or too_uncertain:
                frames.add(atoms, step * options.timestep, temperature, conserved())
            if (
                too_uncertain
                or step == options.steps
                or (step and step % options.restart_every == 0)
            ):
                return None
    except (ValueError, RuntimeError, ArithmeticError) as error:
        # The calculator, or a matrix function of ASE, fails on a structure that has fallen apart.
        return str(error)
    return None


def _is_too_uncertain(atoms: Atoms, options: MolecularDynamics) -> bool:
    """Return True if the uncertainty of the forces stops the run."""
    limit = options.uncertainty.stop_above if options.uncertainty else None
    if limit is None or not knows_uncertainty(atoms.calc):
        return False
    return bool(read_uncertainty(atoms)[0].max() > limit)


def _measure_temperature(atoms: Atoms) -> float:
    return compute_temperature(atoms.get_momenta(), atoms.get_masses()[:, None])


def _describe_state(start: Atoms, now: Atoms) -> str:
    """Format the temperature and, for a cell, the volume."""
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
