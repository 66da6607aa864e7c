"""Phonons by finite displacements; phonopy does the lattice dynamics.

Longitudinal and transverse optical modes at Γ are not split: this needs Born charges, which a
potential does not predict.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from ase import Atoms, units
from ase.calculators.calculator import Calculator
from ase.dft.kpoints import parse_path_string
from numpy.typing import NDArray

from pipeline_atoms.config.properties import PhononOptions
from pipeline_atoms.properties.evaluation import evaluate
from pipeline_atoms.properties.findings import Findings, as_array
from pipeline_atoms.properties.relaxation import prepare
from pipeline_atoms.properties.supercells import count_copies

if TYPE_CHECKING:
    from phonopy import Phonopy
    from phonopy.structure.atoms import PhonopyAtoms

Floats = NDArray[np.float64]

_SYMMETRY: Final = 1e-4
"""Symmetry tolerance, Å; a structure relaxed with its symmetry keeps it far better."""
_POINTS: Final = 40.0
"""Density of points on a path: number over its length in reciprocal space (without 2π), Å."""
_TEMPERATURES: Final = 51
_ROOM: Final = 300.0
"""Temperature of thermodynamic functions in the summary, K."""


@dataclass(frozen=True)
class _Path:
    """A path through the Brillouin zone.

    Attributes:
        points: Name -> reduced coordinates of the end points of segments, each once.
        stretches: Wave vectors of each segment, (n, 3).
        ends: Names of the two end points of each segment.
    """

    points: dict[str, Floats]
    stretches: list[Floats]
    ends: list[tuple[str, str]]


def compute_phonons(atoms: Atoms, calculator: Calculator, options: PhononOptions) -> Findings:
    """Compute bands, density of states and harmonic thermodynamics of a crystal.

    The path follows Setyawan and Curtarolo, doi:10.1016/j.commatsci.2010.05.010, as in ASE.
    Imaginary frequencies are negative. Thermodynamic functions leave them out, and also the three
    translations at Γ.

    Args:
        atoms: A crystal; it is relaxed first.
        calculator: The potential; displaced supercells are calculated in batches.
        options: Supercell, displacement, mesh.

    Raises:
        ValueError: It is not a crystal, does not relax, or phonopy is not installed.
    """
    require_phonopy()
    start = prepare(atoms, calculator, options.relax)
    copies = count_copies(start, options.supercell_length)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"phonopy\.")
        warnings.filterwarnings("ignore", category=UserWarning, message=".*rimitive")
        phonopy, n_displaced = _differentiate(start, calculator, copies, options.displacement)
        path = _choose_path(phonopy)
        bands = phonopy.run_band_structure(path.stretches)
        special = phonopy.run_qpoints(list(path.points.values()))
        mesh = phonopy.run_mesh(options.mesh)
        density = phonopy.run_total_dos()
        thermal = phonopy.run_thermal_properties(
            t_min=0,
            t_max=options.max_temperature,
            t_step=options.max_temperature / (_TEMPERATURES - 1),
            exclude_gamma_acoustic=True,
        )
    n_atoms = len(phonopy.primitive)
    at_points = np.array(special.frequencies)
    every = np.concatenate([*bands.frequencies, mesh.frequencies, at_points])
    wave_vectors = np.concatenate([*path.stretches, mesh.qpoints, list(path.points.values())])
    lowest = int(every.min(axis=1).argmin())
    arrays = {
        "band_distances": np.concatenate(bands.distances),
        "band_frequencies": np.concatenate(bands.frequencies),
        "stretch_lengths": np.array([len(stretch) for stretch in path.stretches]),
        "stretch_ends": np.array(path.ends),
        "point_names": np.array(list(path.points)),
        "point_frequencies": at_points,
        "dos_frequencies": as_array(density.frequency_points),
        "dos": as_array(density.dos) / n_atoms,
        **_convert_thermal(thermal, n_atoms),
    }
    summary = {
        "n_atoms": n_atoms,
        "supercell_atoms": len(phonopy.supercell),
        "displaced_supercells": n_displaced,
        "lowest_frequency_THz": float(every.min()),
        "lowest_at": _name_vector(wave_vectors[lowest], path),
        **_describe_imaginary(at_points, path, mesh, every, options.tolerance),
        "highest_frequency_THz": float(every.max()),
        "zero_point_energy_per_atom_meV": 1000 * float(arrays["free_energy"][0]),
        **_select_room_temperature(arrays),
    }
    return Findings(summary, arrays, _UNITS)


_UNITS: Final = {
    "band_distances": "1/Å",
    "band_frequencies": "THz",
    "point_frequencies": "THz",
    "dos_frequencies": "THz",
    "dos": "1/THz/atom",
    "temperatures": "K",
    "free_energy": "eV/atom",
    "entropy": "k/atom",
    "heat_capacity": "k/atom",
}


def require_phonopy() -> None:
    """Check that phonopy is installed.

    Raises:
        ValueError: It is not installed.
    """
    if find_spec("phonopy") is None:
        raise ValueError(
            "infer.phonons: phonopy is not installed; pip install 'pipeline-core[phonons]'"
        )


def _differentiate(
    start: Atoms, calculator: Calculator, copies: tuple[int, int, int], displacement: float
) -> tuple[Phonopy, int]:
    """Return lattice dynamics with force constants, and the number of displacements."""
    from phonopy import Phonopy
    from phonopy.structure.atoms import PhonopyAtoms

    cell = PhonopyAtoms(
        numbers=start.numbers,
        cell=np.array(start.cell),
        scaled_positions=start.get_scaled_positions(),
        masses=start.get_masses(),
    )
    phonopy = Phonopy(cell, np.diag(copies), primitive_matrix="auto", symprec=_SYMMETRY)
    phonopy.generate_displacements(distance=displacement)
    displaced = phonopy.supercells_with_displacements
    assert displaced, "no displacements"
    cells = [_convert_cell(one) for one in (phonopy.supercell, *displaced)]
    evaluate(cells, calculator)
    still, *moved = (one.get_forces() for one in cells)
    # Residual forces of the relaxed structure are not a response to the displacement.
    phonopy.forces = np.array([forces - still for forces in moved])
    phonopy.produce_force_constants(show_drift=False)
    phonopy.symmetrize_force_constants(show_drift=False)
    return phonopy, len(displaced)


def _convert_cell(cell: PhonopyAtoms) -> Atoms:
    return Atoms(cell.numbers, cell.positions, cell=cell.cell, pbc=True)


def _choose_path(phonopy: Phonopy) -> _Path:
    primitive = _convert_cell(phonopy.primitive)
    chosen = primitive.cell.bandpath(npoints=0)
    points = {name: as_array(chosen.special_points[name]) for name in chosen.special_points}
    reciprocal = np.array(primitive.cell.reciprocal())
    stretches, ends, used = [], [], dict[str, Floats]()
    for part in parse_path_string(chosen.path):
        for first, second in pairwise(part):
            a, b = points[first], points[second]
            length = np.linalg.norm((b - a) @ reciprocal)
            stretches.append(np.linspace(a, b, max(6, round(_POINTS * length * 2))))
            ends.append((first, second))
            used |= {first: a, second: b}
    return _Path(used, stretches, ends)


def _describe_imaginary(
    at_points: Floats, path: _Path, mesh: Any, every: Floats, tolerance: float
) -> dict[str, float | bool | str]:
    """Summarize imaginary modes: their existence, places and share."""
    numbers = (at_points < -tolerance).sum(axis=1)
    counted = [f"{name}: {n}" for name, n in zip(path.points, numbers, strict=True) if n]
    share = np.average((mesh.frequencies < -tolerance).mean(axis=1), weights=mesh.weights)
    return {
        "imaginary": bool(every.min() < -tolerance),
        "imaginary_modes_at": ", ".join(counted),
        "imaginary_share": float(share),
    }


def _name_vector(vector: Floats, path: _Path) -> str:
    near = [name for name, point in path.points.items() if np.allclose(point, vector, atol=1e-6)]
    return near[0] if near else "(" + ", ".join(f"{x:.3g}" for x in vector) + ")"


def _convert_thermal(thermal: Any, n_atoms: int) -> dict[str, Floats]:
    """Convert thermodynamic functions to values per atom, in eV and in Boltzmann's constant."""
    mole = 1000 * units.J / units.mol / n_atoms  # from kJ/mol of cells
    kelvin = units.J / units.mol / units.kB / n_atoms  # from J/K/mol of cells
    return {
        "temperatures": as_array(thermal.temperatures),
        "free_energy": as_array(thermal.free_energy) * mole,
        "entropy": as_array(thermal.entropy) * kelvin,
        "heat_capacity": as_array(thermal.heat_capacity) * kelvin,
    }


def _select_room_temperature(arrays: dict[str, NDArray[Any]]) -> dict[str, float | None]:
    """Interpolate thermodynamic functions to room temperature; None if it is out of range."""
    temperatures = arrays["temperatures"]
    names = {
        "free_energy_300K_per_atom_eV": "free_energy",
        "entropy_300K_k_per_atom": "entropy",
        "heat_capacity_300K_k_per_atom": "heat_capacity",
    }
    if temperatures[-1] < _ROOM:
        return dict.fromkeys(names)
    return {k: float(np.interp(_ROOM, temperatures, arrays[v])) for k, v in names.items()}
