"""Amorphous structures: a crystal is melted, cooled at a constant rate, annealed and relaxed."""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from ase import Atoms, units
from ase.calculators.calculator import Calculator
from numpy.typing import NDArray

from pipeline_atoms.config.properties import MeltQuenchOptions
from pipeline_atoms.dynamics.integrators import Langevin, compute_temperature, draw_momenta
from pipeline_atoms.dynamics.rdf import average_over_blocks
from pipeline_atoms.properties.equation_of_state import require_crystal
from pipeline_atoms.properties.findings import Findings, Scalar
from pipeline_atoms.properties.relaxation import relax
from pipeline_atoms.properties.supercells import count_copies

Floats = NDArray[np.float64]

_TOO_HOT: Final = 50.0
"""Multiple of the target temperature from which on the atoms have flown apart."""
_GRAMS: Final = 1 / (units.mol * 1e-24)
"""u/Å³ in g/cm³."""


@dataclass(frozen=True)
class _Schedule:
    """Record of a melt-quench run.

    Attributes:
        rows: Time in fs, temperature of atoms and of the bath in K, energy in eV/atom, per frame.
        annealed: Positions in the frames of the annealing, (n_atoms, 3) Å.
        displacement: Root mean square displacement in the melt, Å.
    """

    rows: list[tuple[float, float, float, float]]
    annealed: list[Floats]
    displacement: float


def compute_glass(atoms: Atoms, calculator: Calculator, options: MeltQuenchOptions) -> Findings:
    """Make an amorphous structure at constant volume, and describe it.

    Radial distribution functions are averages over the annealing, with standard errors of blocks.

    Args:
        atoms: A cell with the density of the melt.
        calculator: The potential.
        options: Temperatures, cooling rate and lengths.

    Raises:
        ValueError: It is not periodic, has one atom, or the atoms flew apart.
    """
    require_crystal(atoms)
    moving = atoms.copy()
    if options.supercell_length:
        moving = moving.repeat(count_copies(moving, options.supercell_length))
    if len(moving) < 2:
        raise ValueError(
            "one atom alone does not move relative to its centre of mass; raise supercell_length"
        )
    moving.calc = calculator
    done = _run(moving, options)
    summary = _describe_run(moving, options, done)
    cold = moving
    if options.relax is not None:
        relaxed = relax(moving, calculator, options.relax)
        cold = relaxed.atoms
        summary |= {"converged": relaxed.converged}
    summary |= {
        "energy_per_atom_eV": float(cold.get_potential_energy()) / len(cold),
        "density_g_per_cm3": _GRAMS * float(cold.get_masses().sum() / cold.cell.volume),
    }
    arrays = {
        **dict(zip(_COLUMNS, np.array(done.rows).T, strict=True)),
        "atomic_numbers": cold.numbers,
        "positions": cold.positions,
        "cell": np.array(cold.cell),
        **_describe_structure(moving, done.annealed),
    }
    return Findings(summary, arrays, _UNITS)


_COLUMNS: Final = ("time", "temperature", "bath", "energy")
_UNITS: Final = {
    "time": "fs",
    "temperature": "K",
    "bath": "K",
    "energy": "eV/atom",
    "positions": "Å",
    "cell": "Å",
    "r": "Å",
}


def _run(atoms: Atoms, options: MeltQuenchOptions) -> _Schedule:
    """Melt, cool and anneal."""
    hot, cold = options.melt_temperature, options.final_temperature
    rng = np.random.default_rng(options.seed)
    atoms.set_momenta(draw_momenta(atoms, hot, rng))
    bath = Langevin(atoms, options.timestep * units.fs, hot, options.friction / units.fs, rng)
    schedule = _Schedule([], [], 0.0)
    start = atoms.positions.copy()
    _advance(bath, schedule, options, hot, options.melt_steps)
    displacement = float(np.sqrt(((atoms.positions - start) ** 2).sum(axis=1).mean()))
    _advance(bath, schedule, options, cold, _count_cooling(options))
    schedule.annealed.clear()
    _advance(bath, schedule, options, cold, options.anneal_steps)
    return replace(schedule, displacement=displacement)


def _count_cooling(options: MeltQuenchOptions) -> int:
    """Return the number of steps of the cooling."""
    span = options.melt_temperature - options.final_temperature
    return max(1, round(1000 * span / options.cooling_rate / options.timestep))


def _advance(
    bath: Langevin,
    schedule: _Schedule,
    options: MeltQuenchOptions,
    temperature: float,
    n_steps: int,
) -> None:
    """Do steps, with a linear ramp of the bath to `temperature`, K."""
    atoms, first = bath.atoms, bath.temperature
    masses = atoms.get_masses()[:, None]
    for number in range(1, n_steps + 1):
        bath.set_temperature(first + (temperature - first) * number / n_steps)
        bath.run(1)
        now = compute_temperature(atoms.get_momenta(), masses)
        if not now <= _TOO_HOT * options.melt_temperature:
            raise ValueError(
                f"the atoms flew apart at step {bath.nsteps}, at {now:.3g} K; the model is outside "
                f"its data, or the time step of {options.timestep:g} fs is too long"
            )
        if number % options.every == 0 or number == n_steps:
            energy = float(atoms.get_potential_energy()) / len(atoms)
            time = bath.nsteps * options.timestep
            schedule.rows.append((time, now, bath.temperature, energy))
            schedule.annealed.append(atoms.positions.copy())


def _describe_run(atoms: Atoms, options: MeltQuenchOptions, done: _Schedule) -> dict[str, Scalar]:
    spacing = float((atoms.cell.volume / len(atoms)) ** (1 / 3))
    return {
        "n_atoms": len(atoms),
        "melt_temperature_K": options.melt_temperature,
        "cooling_rate_K_per_ps": options.cooling_rate,
        "steps": options.melt_steps + _count_cooling(options) + options.anneal_steps,
        "melt_displacement_A": done.displacement,
        # In a solid vibrations stay within a fraction of the atomic distance (Lindemann criterion).
        "melted": done.displacement > spacing,
    }


def _describe_structure(atoms: Atoms, positions: list[Floats]) -> dict[str, Any]:
    """Compute radial distribution functions of frames of one cell, with their errors."""
    cell, frames = np.array(atoms.cell), np.arange(len(positions))
    radii, means, errors = average_over_blocks(
        atoms.numbers, lambda n: (positions[n], cell), frames
    )
    named = {f"rdf_{name}": values for name, values in means.items()}
    return {"r": radii, **named, **{f"rdf_error_{name}": x for name, x in errors.items()}}
