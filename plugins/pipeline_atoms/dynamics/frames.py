"""Frames of a molecular-dynamics run: storage and summary."""

from typing import IO, Any, Final

import h5py
import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, PropertyNotImplementedError
from ase.io.extxyz import write_xyz
from numpy.typing import NDArray

from pipeline_atoms.calculators.committee import Committee
from pipeline_atoms.config.dynamics import MolecularDynamics
from pipeline_atoms.dynamics.rdf import average_over_blocks
from pipeline_core.artifacts.extracts import BULK
from pipeline_core.units import GPA

Floats = NDArray[np.float64]

OBSERVABLES: Final = {
    "time": "fs",
    "potential": "eV",
    "kinetic": "eV",
    "conserved": "eV",
    "temperature": "K",
    "pressure": "GPa",
    "volume": "Å³",
    "max_force": "eV/Å",
}
"""Quantities stored for each frame, with their units; the pressure includes its kinetic part."""

UNCERTAINTIES: Final = {"force_uncertainty": "eV/Å", "energy_uncertainty": "eV/atom"}
"""Further quantities with a calibrated committee: half widths of 95 % intervals, of the widest
force component and of the energy."""

UNCHANGING: Final = ("atomic_numbers",)
"""Quantities stored once, and not for each frame."""

_RDF_FRAMES: Final = 200


class Frames:
    """Writer of the frames of a run: extended XYZ for people and tools, HDF5 for figures.

    Args:
        group: Receives one dataset per observable, with a row per frame.
        file: Receives the frames as extended XYZ.
        atoms: The start structure.
    """

    def __init__(self, group: h5py.Group, file: IO[str], atoms: Atoms) -> None:
        self._group, self._file, self._next = group, file, 0
        group.create_dataset("atomic_numbers", data=atoms.numbers)
        self._is_uncertain = knows_uncertainty(atoms.calc)
        stored = OBSERVABLES | (UNCERTAINTIES if self._is_uncertain else {})
        for name, unit in stored.items():
            data = group.create_dataset(name, (0,), "f8", maxshape=(None,))
            data.attrs["unit"] = unit
        for name, shape in {"positions": (len(atoms), 3), "cell": (3, 3)}.items():
            sizes = {"shape": (0, *shape), "maxshape": (None, *shape), "chunks": (1, *shape)}
            data = group.create_dataset(name, dtype="f4", **sizes)
            data.attrs.update({"unit": "Å", BULK: True})

    def add(self, atoms: Atoms, time_fs: float, temperature: float, conserved: float) -> None:
        """Store the present frame."""
        row = {
            "time": time_fs,
            "potential": atoms.get_potential_energy(),
            "kinetic": atoms.get_kinetic_energy(),
            "conserved": conserved,
            "temperature": temperature,
            "pressure": _compute_pressure(atoms),
            "volume": atoms.cell.volume if atoms.pbc.all() else np.nan,
            "max_force": np.linalg.norm(atoms.get_forces(), axis=1).max(),
            "positions": atoms.positions,
            "cell": np.array(atoms.cell),
        }
        # The copy keeps the data of a frame out of the moving atoms.
        frame = atoms.copy()
        if self._is_uncertain:
            half, energy = read_uncertainty(atoms)
            row |= {"force_uncertainty": half.max(), "energy_uncertainty": energy}
            frame.arrays["forces_uncertainty"] = half
            frame.info["energy_uncertainty"] = energy * len(atoms)
        self._next += 1
        for name, value in row.items():
            self._group[name].resize(self._next, axis=0)
            self._group[name][self._next - 1] = value
        frame.calc = atoms.calc
        frame.info["time_fs"] = time_fs
        write_xyz(self._file, frame)


def knows_uncertainty(calculator: Calculator | None) -> bool:
    """Return True if a calculator is a committee with calibrated forces and energies."""
    wanted = {"forces", "energy_per_atom"}
    return isinstance(calculator, Committee) and wanted <= calculator.calibrations.keys()


def read_uncertainty(atoms: Atoms) -> tuple[Floats, float]:
    """Return the half widths of forces, (n_atoms,) eV/Å, and of the energy, eV/atom."""
    atoms.get_potential_energy()  # updates the results
    results = atoms.calc.results
    return results["forces_uncertainty"], results["energy_uncertainty"] / len(atoms)


def _compute_pressure(atoms: Atoms) -> float:
    """Compute the pressure with its kinetic part, GPa; NaN if the stress is not defined."""
    try:
        stress = atoms.get_stress(voigt=False, include_ideal_gas=True)
    except PropertyNotImplementedError:
        return float("nan")
    return float(-np.trace(stress) / 3 / GPA)


def summarize_uncertainty(group: h5py.Group, limit: float) -> dict[str, Any]:
    """Count the flagged frames of a committee run, and find the first one.

    Args:
        group: Group of the run, filled by `Frames`.
        limit: Half width of a force component above which a frame is flagged, eV/Å.
    """
    if "force_uncertainty" not in group:
        return {}
    half = group["force_uncertainty"][:]
    flagged = np.flatnonzero(half > limit)
    return {
        "flag_above_eV_per_A": limit,
        "largest_force_uncertainty_eV_per_A": float(half.max()),
        "frames": len(half),
        "flagged_frames": len(flagged),
        "first_flagged_fs": float(group["time"][flagged[0]]) if len(flagged) else None,
    }


def summarize(group: h5py.Group, options: MolecularDynamics) -> dict[str, Any]:
    """Summarize the observables of a run.

    The drift is the slope of a linear fit to the conserved energy, the fluctuation the root mean
    square of the residual. Thermal averages are taken over the second half of the run.

    Args:
        group: Group of the run, filled by `Frames`.
        options: Options of the run.

    Returns:
        Name with unit -> number, or None if it is not defined.
    """
    n_atoms = len(group["atomic_numbers"])
    observables = {name: group[name][:] for name in OBSERVABLES}
    drift, fluctuation = _fit_drift(observables["time"] / 1000, observables["conserved"])
    settled = {name: values[len(values) // 2 :] for name, values in observables.items()}
    return {
        "ensemble": options.ensemble,
        "n_atoms": n_atoms,
        "steps": options.steps,
        "timestep_fs": options.timestep,
        "target_temperature_K": options.temperature,
        "temperature_mean_K": float(settled["temperature"].mean()),
        "temperature_std_K": float(settled["temperature"].std()),
        "pressure_mean_GPa": _compute_mean(settled["pressure"]),
        "volume_mean_A3": _compute_mean(settled["volume"]),
        "averaged_from_fs": float(settled["time"][0]),
        "drift_meV_per_atom_per_ps": None if drift is None else 1000 * drift / n_atoms,
        "fluctuation_meV_per_atom": 1000 * fluctuation / n_atoms,
        "max_force_eV_per_A": float(observables["max_force"].max()),
    }


def _fit_drift(time_ps: Floats, energy: Floats) -> tuple[float | None, float]:
    """Return the slope of a linear fit to `energy`, and the rms of the residual."""
    if len(energy) < 2:
        return None, 0.0
    slope, offset = np.polyfit(time_ps, energy - energy[0], 1)
    rest = energy - energy[0] - offset - slope * time_ps
    return float(slope), float(np.sqrt((rest**2).mean()))


def _compute_mean(values: Floats) -> float | None:
    return float(values.mean()) if np.isfinite(values).all() else None


def store_rdf(group: h5py.Group) -> None:
    """Add the radial distribution functions over the second half of a run to its group.

    Standard errors over blocks are in `rdf_error`, if there is more than one block.
    """
    n_frames = len(group["positions"])
    chosen = np.unique(np.linspace(n_frames // 2, n_frames - 1, _RDF_FRAMES).astype(int))
    numbers = group["atomic_numbers"][:]

    def read(n: int) -> tuple[Floats, Floats]:
        return group["positions"][n].astype(float), group["cell"][n].astype(float)

    distances, means, errors = average_over_blocks(numbers, read, chosen)
    group.create_dataset("rdf/r", data=distances).attrs["unit"] = "Å"
    for folder, pairs in (("rdf", means), ("rdf_error", errors)):
        for name, values in pairs.items():
            group.create_dataset(f"{folder}/{name}", data=values)
