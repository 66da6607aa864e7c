"""Surface energies of slabs, which pymatgen cuts."""

import warnings
from functools import partial

import numpy as np
from ase import Atoms, units
from ase.calculators.calculator import Calculator
from pymatgen.core import Structure
from pymatgen.core.surface import Slab, SlabGenerator
from pymatgen.io.ase import AseAtomsAdaptor

from pipeline_atoms.config.properties import SurfaceOptions
from pipeline_atoms.properties.equation_of_state import require_crystal
from pipeline_atoms.properties.findings import Findings, Scalar, Tasks, refuse
from pipeline_atoms.properties.relaxation import free_atoms, prepare, relax


def list_surfaces(atoms: Atoms, calculator: Calculator, options: SurfaceOptions) -> Tasks:
    """Yield the name of each termination, with a function for its surface energy.

    γ = (E(slab) - n E(crystal) / N) / 2 A; if the two sides of a slab differ it is their mean. Only
    slabs with the composition of the crystal are calculated.

    Args:
        atoms: A crystal; it is relaxed first.
        calculator: The potential.
        options: Orientations and sizes.

    Raises:
        ValueError: It is not a crystal, or does not relax.
    """
    require_crystal(atoms)
    crystal = prepare(atoms, calculator, options.relax)
    energy = float(crystal.get_potential_energy()) / len(crystal)
    conventional = _find_conventional(crystal)
    for miller in options.miller:
        plane = f"({' '.join(map(str, miller))})"
        try:
            slabs = cut_slabs(conventional, miller, options)
        except ValueError as error:
            yield plane, partial(refuse, error)
            continue
        for number, slab in enumerate(slabs):
            name = plane if len(slabs) == 1 else f"{plane} {'abcdefghijklmnop'[number % 16]}"
            yield name, partial(compute_surface, slab, plane, calculator, options, energy)


def cut_slabs(
    conventional: Structure, miller: tuple[int, int, int], options: SurfaceOptions
) -> list[Slab]:
    """Cut the slabs of one orientation that have the composition of the crystal.

    Raises:
        ValueError: There is no such slab.
    """
    generator = SlabGenerator(
        conventional, miller, options.thickness, options.vacuum, center_slab=True
    )
    slabs = generator.get_slabs()
    wanted = conventional.composition.reduced_formula
    like = [slab for slab in slabs if slab.composition.reduced_formula == wanted]
    if not like:
        raise ValueError(
            f"none of {len(slabs)} terminations has the composition {wanted}, without which the "
            "energy depends on chemical potentials; choose other Miller indices"
        )
    return like[: options.max_slabs]


def compute_surface(
    slab: Slab, plane: str, calculator: Calculator, options: SurfaceOptions, energy: float
) -> Findings:
    """Compute the energy of the surfaces of a slab.

    Args:
        slab: The slab before relaxation.
        plane: Its Miller indices.
        calculator: The potential.
        options: Options of its relaxation.
        energy: Energy per atom of the crystal, eV.

    Raises:
        ValueError: It flew apart.
    """
    atoms = _strip(AseAtomsAdaptor.get_atoms(slab))
    area = slab.surface_area

    def compare(total: float) -> float:
        return float((total - len(atoms) * energy) / (2 * area) * units.m**2 / units.J)

    summary: dict[str, Scalar] = {
        "plane": plane,
        "n_atoms": len(atoms),
        "area_A2": area,
        "unrelaxed_energy_J_per_m2": compare(float(calculator.get_property("energy", atoms))),
        "surface_energy_J_per_m2": None,
        "symmetric": bool(slab.is_symmetric()),
        "converged": True,
    }
    if options.relax is not None:
        relaxed = relax(atoms, calculator, free_atoms(options.relax))
        moved = np.linalg.norm(relaxed.atoms.positions - atoms.positions, axis=1)
        summary |= {
            "surface_energy_J_per_m2": compare(float(relaxed.atoms.get_potential_energy())),
            "largest_displacement_A": float(moved.max()),
            "converged": relaxed.converged,
        }
    return Findings(summary)


def _find_conventional(crystal: Atoms) -> Structure:
    """Find the conventional cell, to which Miller indices refer."""
    structure: Structure = AseAtomsAdaptor.get_structure(_strip(crystal))
    with warnings.catch_warnings():
        # pymatgen sorts atoms by electronegativity; noble gases without one do no harm.
        warnings.filterwarnings("ignore", message="No Pauling electronegativity")
        return structure.to_conventional()


def _strip(atoms: Atoms) -> Atoms:
    """Return the bare structure, without further data of pymatgen and calculators."""
    return Atoms(atoms.numbers, atoms.positions, cell=atoms.cell, pbc=True)
