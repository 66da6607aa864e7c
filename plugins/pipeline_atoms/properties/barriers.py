"""Barriers of minimum-energy paths, by the nudged elastic band."""

from functools import partial
from typing import Any, Final

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator
from ase.geometry import get_distances
from ase.mep import NEB
from ase.optimize import FIRE
from ase.utils.forcecurve import fit_images
from numpy.typing import NDArray

from pipeline_atoms.config.properties import NebOptions, Relaxation
from pipeline_atoms.properties.evaluation import evaluate
from pipeline_atoms.properties.findings import Findings, Tasks, as_array
from pipeline_atoms.properties.relaxation import free_atoms, prepare, quiet, relax_converged
from pipeline_atoms.properties.supercells import count_copies, list_sites
from pipeline_atoms.properties.vacancies import remove_atom

_SAME: Final = 0.1
"""Smallest difference of two ends, Å; closer ends are the same minimum."""


def list_hops(atoms: Atoms, calculator: Calculator, options: NebOptions) -> Tasks:
    """Yield the name of each hop into a vacancy of a crystal, with a function for its barrier.

    For each inequivalent site, the nearest atom of the same element hops into its vacancy.

    Args:
        atoms: A crystal; it is relaxed first.
        calculator: The potential.
        options: Supercell and elements.

    Raises:
        ValueError: It is not a crystal, does not relax, or has none of the elements.
    """
    crystal = prepare(atoms, calculator, options.relax)
    whole = crystal.repeat(count_copies(crystal, options.supercell_length))
    sites = list_sites(crystal, options.relax.symmetry_tolerance, options.elements)
    for site, name in sites.items():
        yield name, partial(_compute_hop, whole, site, calculator, options)


def _compute_hop(whole: Atoms, site: int, calculator: Calculator, options: NebOptions) -> Findings:
    return compute_barrier(*make_hop(whole, site), calculator, options)


def make_hop(whole: Atoms, site: int) -> tuple[Atoms, Atoms]:
    """Return a crystal with a vacancy before and after the nearest atom hops into it.

    Raises:
        ValueError: There is no other atom of the element.
    """
    others = [n for n, z in enumerate(whole.numbers) if z == whole.numbers[site] and n != site]
    if not others:
        raise ValueError(
            f"has one atom of {whole.symbols[site]} in its supercell; raise supercell_length"
        )
    vectors, distances = get_distances(
        whole.positions[[site]], whole.positions[others], whole.cell, whole.pbc
    )
    nearest = int(distances[0].argmin())
    hopping = others[nearest]
    final = whole.copy()
    final.positions[hopping] -= vectors[0, nearest]
    return remove_atom(whole, site), remove_atom(final, site)


def compute_barrier(
    initial: Atoms, final: Atoms, calculator: Calculator, options: NebOptions
) -> Findings:
    """Search the minimum-energy path between two minima, which are relaxed at fixed cell first.

    The band uses the improved tangent, doi:10.1063/1.1323224, and a climbing image,
    doi:10.1063/1.1329672. Between images the energy is a polynomial of third degree with their
    forces.

    Args:
        initial: One minimum.
        final: The other; the same atoms in the same order and cell.
        calculator: The potential.
        options: Images and accuracy.

    Raises:
        ValueError: The ends do not fit together, do not relax, or are the same minimum.
    """
    _require_alike(initial, final)
    ends = [relax_converged(end, calculator, free_atoms(options.relax)) for end in (initial, final)]
    _, distances = get_distances(*(end.positions for end in ends), ends[0].cell, ends[0].pbc)
    if np.diagonal(distances).max() < _SAME:
        raise ValueError(
            "both ends relax to one minimum; give ends that are further apart, or separated by "
            "a barrier"
        )
    images = [ends[0], *(ends[0].copy() for _ in range(options.images)), ends[1]]
    evaluate(ends, calculator)
    converged, steps = _relax_band(images, calculator, options.relax)
    return _describe(images, converged, steps)


class _Band(NEB):  # type: ignore[misc] # ASE is not typed
    """Elastic band with the images between the ends calculated in batches.

    Args:
        images: All images, with results for both ends.
        calculator: Calculator of the images between them.
    """

    def __init__(self, images: list[Atoms], calculator: Calculator) -> None:
        super().__init__(images, climb=True, method="improvedtangent")
        self._calculator = calculator

    def get_forces(self) -> NDArray[np.float64]:
        evaluate(self.images[1:-1], self._calculator)
        forces: NDArray[np.float64] = super().get_forces()
        return forces


def _relax_band(
    images: list[Atoms], calculator: Calculator, options: Relaxation
) -> tuple[bool, int]:
    """Relax the images between the ends; return True if converged, and the number of steps."""
    band = _Band(images, calculator)
    # For a single atom distances between atoms are not defined.
    band.interpolate("idpp" if len(images[0]) > 1 else "linear", mic=bool(images[0].pbc.any()))
    with quiet():
        optimizer = FIRE(band, logfile=None)
        converged = optimizer.run(fmax=options.max_force, steps=options.steps)
    return bool(converged), int(optimizer.nsteps)


def _describe(images: list[Atoms], converged: bool, steps: int) -> Findings:
    fitted: Any = fit_images(images)
    energies = as_array(fitted.energies)
    highest = int(energies.argmax())
    summary = {
        "n_atoms": len(images[0]),
        "barrier_eV": float(energies[highest]),
        "reverse_barrier_eV": float(energies[highest] - energies[-1]),
        "energy_difference_eV": float(energies[-1]),
        "path_length_A": float(fitted.path[-1]),
        "highest_image": highest,
        "steps": steps,
        "converged": converged,
    }
    arrays = {
        "path": as_array(fitted.path),
        "energies": energies,
        "curve_path": as_array(fitted.fit_path),
        "curve_energies": as_array(fitted.fit_energies),
        "positions": np.stack([image.positions for image in images]),
        "cell": np.array(images[0].cell),
        "atomic_numbers": images[0].numbers,
    }
    units = {n: "eV" if "energies" in n else "Å" for n in arrays if n != "atomic_numbers"}
    return Findings(summary, arrays, units)


def _require_alike(initial: Atoms, final: Atoms) -> None:
    if not np.array_equal(initial.numbers, final.numbers):
        raise ValueError("the ends have other atoms, or another order; give them the same")
    same = np.allclose(initial.cell, final.cell, atol=1e-6) and (initial.pbc == final.pbc).all()
    if not same:
        raise ValueError("the ends have different cells; give them the same one")
