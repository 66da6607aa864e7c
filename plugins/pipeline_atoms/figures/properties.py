"""Tables and warnings of properties of materials from the trained potential."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.config.properties import GROUP
from pipeline_core.figures import Rows, results
from pipeline_core.figures.findings import Table
from pipeline_core.figures.formats import format_number
from pipeline_core.project.run import ExperimentRun, Run

_TITLES: Final = {
    "relax": "Relaxed structures",
    "eos": "Equations of state",
    "elastic": "Elastic constants",
    "phonons": "Phonons",
    "vacancies": "Vacancies",
    "surfaces": "Surfaces",
    "neb": "Energy barriers",
    "melt_quench": "Amorphous structures",
}
_COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    "relax": {
        "space_group": "Space group",
        "a_A": "a (Å)",
        "b_A": "b (Å)",
        "c_A": "c (Å)",
        "volume_per_atom_A3": "Volume (Å³/atom)",
        "energy_per_atom_eV": "Energy (eV/atom)",
    },
    "eos": {
        "volume_per_atom_A3": "Volume (Å³/atom)",
        "energy_per_atom_eV": "Energy (eV/atom)",
        "bulk_modulus_GPa": "Bulk modulus (GPa)",
        "bulk_modulus_derivative": "Its derivative",
    },
    "elastic": {
        "C11_GPa": "C11 (GPa)",
        "C12_GPa": "C12 (GPa)",
        "C44_GPa": "C44 (GPa)",
        "bulk_modulus_GPa": "Bulk modulus (GPa)",
        "shear_modulus_GPa": "Shear modulus (GPa)",
        "poisson_ratio": "Poisson's ratio",
    },
    "phonons": {
        "lowest_frequency_THz": "Lowest (THz)",
        "lowest_at": "at",
        "imaginary": "Imaginary modes",
        "highest_frequency_THz": "Highest (THz)",
        "zero_point_energy_per_atom_meV": "Zero point (meV/atom)",
        "heat_capacity_300K_k_per_atom": "Heat capacity, 300 K (k/atom)",
    },
    "vacancies": {
        "supercell_atoms": "Atoms",
        "unrelaxed_energy_eV": "Unrelaxed (eV)",
        "formation_energy_eV": "Relaxed (eV)",
        "chemical_potential_of": "Chemical potential of",
    },
    "surfaces": {
        "n_atoms": "Atoms",
        "symmetric": "Sides alike",
        "unrelaxed_energy_J_per_m2": "Unrelaxed (J/m²)",
        "surface_energy_J_per_m2": "Relaxed (J/m²)",
    },
    "neb": {
        "n_atoms": "Atoms",
        "barrier_eV": "Barrier (eV)",
        "reverse_barrier_eV": "Back (eV)",
        "energy_difference_eV": "Energy difference (eV)",
        "path_length_A": "Path (Å)",
    },
    "melt_quench": {
        "n_atoms": "Atoms",
        "cooling_rate_K_per_ps": "Cooling (K/ps)",
        "melt_displacement_A": "Displacement in the melt (Å)",
        "density_g_per_cm3": "Density (g/cm³)",
        "energy_per_atom_eV": "Energy (eV/atom)",
    },
}
"""Keys of a summary in the tables of the report; the tables of the figures have all keys."""
_DIGITS: Final = 4
_EXACT: Final = ("energy_per_atom_eV",)
"""Energies with significant differences, shown to a tenth of a meV."""


@dataclass(frozen=True)
class Property:
    """Result of a property calculation for one structure.

    Attributes:
        entry: Name of the entry in the experiment.
        structure: Name of the structure.
        variant: Variant of the model.
        summary: Name with unit -> number or word.
        arrays: Arrays for figures.
    """

    entry: str
    structure: str
    variant: str
    summary: dict[str, Any]
    arrays: dict[str, NDArray[Any]]

    @property
    def label(self) -> str:
        """Label in a figure."""
        return self.structure.replace("_", " ")


def read_properties(experiment: ExperimentRun, section: str) -> list[Property]:
    """Read the results of a section for all variants, entries and structures, without problems."""
    found = [one for run in experiment.runs.values() for one in _read_run(run, section)]
    return [one for one in found if "problem" not in one.summary]


def _read_run(run: Run, section: str) -> list[Property]:
    with results.open_inference(run) as file:
        group = (file or {}).get(f"{GROUP}/{section}")
        if group is None:
            return []
        return [
            Property(entry, name, run.label, _read_summary(one), _read_arrays(one))
            for entry, structures in group.items()
            for name, one in structures.items()
        ]


def _read_summary(group: h5py.Group) -> dict[str, Any]:
    return {k: v.item() if isinstance(v, np.generic) else v for k, v in group.attrs.items()}


def _read_arrays(group: h5py.Group) -> dict[str, NDArray[Any]]:
    return {k: d.asstr()[:] if d.dtype.kind == "O" else d[:] for k, d in group.items()}


def name_panel(one: Property, members: list[Property]) -> str:
    """Return the title of a panel: the structure, with entry and variant if there are several."""
    variants = {m.variant for m in members}
    entries = {m.entry for m in members}
    words = [one.entry.replace("_", " ")] if len(entries) > 1 else []
    words += [one.label] + ([one.variant] if len(variants) > 1 else [])
    return ", ".join(words)


def make_rows(found: list[Property]) -> Rows:
    """Return all summaries as a table."""
    columns = list(dict.fromkeys(key for one in found for key in one.summary))
    body = [
        [one.entry, one.structure, one.variant, *(one.summary.get(key) for key in columns)]
        for one in found
    ]
    return [["entry", "structure", "variant", *columns], *body]


def tabulate_properties(experiment: ExperimentRun) -> list[Table]:
    """Return a table for each calculated section of properties."""
    tables = []
    for section, columns in _COLUMNS.items():
        found = read_properties(experiment, section)
        if found:
            rows = [
                [one.label, one.variant, *(_format(one.summary.get(k), k) for k in columns)]
                for one in found
            ]
            header = ["Structure", "Variant", *columns.values()]
            tables.append(Table(title=_TITLES[section], header=header, rows=rows))
    return tables


def _format(value: Any, key: str) -> str:
    if isinstance(value, float):
        if key.endswith("_THz"):  # acoustic modes at Γ are zero but for rounding
            value = round(value, 3)
        return f"{value:.4f}" if key in _EXACT else format_number(value, _DIGITS)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "–" if value is None else str(value)


def list_warnings(experiment: ExperimentRun) -> list[str]:
    """List structures without a result, without convergence, or without stability."""
    found = [
        (section, one)
        for run in experiment.runs.values()
        for section in _COLUMNS
        for one in _read_run(run, section)
    ]
    return [
        f"{_TITLES[section]}, {one.label} of {one.variant}: {problem}."
        for section, one in found
        for problem in _list_problems(one.summary)
    ]


def _list_problems(summary: Mapping[str, Any]) -> Iterator[str]:
    if "problem" in summary:
        yield summary["problem"]
    if not summary.get("converged", True):
        yield "not relaxed after the last step, so the numbers are of no equilibrium"
    if not summary.get("melted", True):
        yield (
            "atoms moved by less than the distance between them, so it has not melted; raise "
            "melt_temperature or melt_steps"
        )
    if not summary.get("stable", True):
        yield "the elastic constants are those of an unstable crystal"
    if summary.get("imaginary", False):
        share = 100 * summary["imaginary_share"]
        yield (
            f"imaginary modes, {share:.2g} % of all, the lowest of "
            f"{format_number(summary['lowest_frequency_THz'])} THz at {summary['lowest_at']}; the "
            "structure is not a minimum of the model, or the supercell is too small"
        )
