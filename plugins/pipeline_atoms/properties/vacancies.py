"""Formation energies of vacancies."""

from collections.abc import Callable, Mapping
from functools import partial
from statistics import fmean
from typing import Final

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator
from ase.data import atomic_numbers
from ase.geometry import get_distances
from numpy.typing import NDArray

from pipeline_atoms.calculators.calculator import PotentialCalculator
from pipeline_atoms.calculators.committee import Committee
from pipeline_atoms.config.properties import Relaxation, VacancyOptions
from pipeline_atoms.properties.findings import Findings, Scalar, Tasks
from pipeline_atoms.properties.relaxation import free_atoms, prepare, relax
from pipeline_atoms.properties.supercells import count_copies, list_sites

Floats = NDArray[np.float64]

_NEAREST: Final = 1.15
"""Largest distance of nearest neighbours, over the shortest distance."""


def list_vacancies(
    atoms: Atoms,
    calculator: Calculator,
    options: VacancyOptions,
    reservoirs: Mapping[str, Atoms],
) -> Tasks:
    """Yield the name of each inequivalent site, with a function for its vacancy.

        E_f = E(N - 1) - E(N) + µ

    The supercell keeps its volume; its atoms relax.

    Args:
        atoms: A crystal; it is relaxed first.
        calculator: The potential.
        options: Supercell and elements.
        reservoirs: Element -> structure with the energy µ per atom.

    Raises:
        ValueError: It is not a crystal, does not relax, or has none of the elements.
    """
    crystal = prepare(atoms, calculator, options.relax)
    whole = crystal.repeat(count_copies(crystal, options.supercell_length))
    tolerance = (options.relax or Relaxation()).symmetry_tolerance
    sites = list_sites(crystal, tolerance, options.elements)
    energy = float(calculator.get_property("energy", whole))
    for site, name in sites.items():
        given = reservoirs.get(crystal.symbols[site])
        chemical = partial(_find_potential, crystal, site, calculator, options, given)
        yield name, partial(compute_vacancy, whole, site, calculator, options, energy, chemical)


def compute_vacancy(
    whole: Atoms,
    site: int,
    calculator: Calculator,
    options: VacancyOptions,
    energy: float,
    chemical: Callable[[], tuple[float, str]],
) -> Findings:
    """Compute the formation energy of a vacancy: remove one atom, and relax the others.

    Args:
        whole: The supercell.
        site: Index of the atom.
        calculator: The potential.
        options: Options of the relaxation.
        energy: Energy of the supercell, eV.
        chemical: Returns the chemical potential, eV, and its source.

    Raises:
        ValueError: A relaxation flew apart.
    """
    vacant = remove_atom(whole, site)
    bare = float(calculator.get_property("energy", vacant))
    potential, source = chemical()
    summary: dict[str, Scalar] = {
        "element": str(whole.symbols[site]),
        "supercell_atoms": len(whole),
        "unrelaxed_energy_eV": bare - energy + potential,
        "formation_energy_eV": None,
        "chemical_potential_eV": potential,
        "chemical_potential_of": source,
        "converged": True,
    }
    if options.relax is not None:
        starts = [distort(vacant, whole.positions[site], d, options) for d in options.distortions]
        ends = [relax(start, calculator, free_atoms(options.relax)) for start in starts]
        relaxed = min(ends, key=lambda end: float(end.atoms.get_potential_energy()))
        moved = np.linalg.norm(relaxed.atoms.positions - vacant.positions, axis=1)
        energy_now = float(relaxed.atoms.get_potential_energy())
        summary |= {
            "formation_energy_eV": energy_now - energy + potential,
            "largest_displacement_A": float(moved.max()),
            "converged": relaxed.converged,
        }
    return Findings(summary)


def remove_atom(atoms: Atoms, site: int) -> Atoms:
    """Return a structure without one of its atoms."""
    vacant = atoms.copy()
    del vacant[site]
    return vacant


def distort(vacant: Atoms, place: Floats, distortion: float, options: VacancyOptions) -> Atoms:
    """Return a distorted start for the relaxation.

    Args:
        vacant: The supercell without the atom.
        place: Position of the removed atom, (3,) Å.
        distortion: Relative outward displacement of the nearest atoms.
        options: Size of random displacements of all atoms.
    """
    start = vacant.copy()
    vectors, distances = get_distances(place[None], vacant.positions, vacant.cell, vacant.pbc)
    nearest = distances[0] < _NEAREST * distances[0].min()
    start.positions[nearest] += distortion * vectors[0][nearest]
    start.rattle(options.rattle, seed=0)
    return start


def _find_potential(
    crystal: Atoms,
    site: int,
    calculator: Calculator,
    options: VacancyOptions,
    reservoir: Atoms | None,
) -> tuple[float, str]:
    """Find the chemical potential of the atom of a site, eV, and its source."""
    symbol = str(crystal.symbols[site])
    if reservoir is not None:
        relaxation = options.relax and options.relax.model_copy(
            update={"cell": options.relax.cell and bool(reservoir.pbc.all())}
        )
        source = prepare(reservoir, calculator, relaxation)
        return float(source.get_potential_energy()) / len(source), "reservoir"
    if set(crystal.symbols) == {symbol}:
        return float(crystal.get_potential_energy()) / len(crystal), "crystal"
    return _find_free_energy(calculator, symbol), "free atom"


def _find_free_energy(calculator: Calculator, symbol: str) -> float:
    """Return the energy of a free atom in a potential, eV; 0 for potentials of ASE."""
    if isinstance(calculator, Committee):
        return fmean(_find_free_energy(member, symbol) for member in calculator.members)
    if isinstance(calculator, PotentialCalculator):
        return float(calculator.module.atom_energies[atomic_numbers[symbol]])
    return 0.0
