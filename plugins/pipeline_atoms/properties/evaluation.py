"""Energies and forces of many structures, in batches for a `Potential`."""

from collections.abc import Iterator, Sequence
from typing import Final

from ase import Atoms
from ase.calculators.calculator import Calculator
from ase.calculators.singlepoint import SinglePointCalculator

from pipeline_atoms.calculators.calculator import PotentialCalculator
from pipeline_atoms.calculators.divided import DividedCalculator

_BATCH_ATOMS: Final = 1000
"""Largest number of atoms of a batch, unless one structure has more."""


def evaluate(structures: Sequence[Atoms], calculator: Calculator) -> None:
    """Attach the energy in eV and the forces (n_atoms, 3) in eV/Å to each structure.

    Args:
        structures: Structures; each gets a `SinglePointCalculator` with its results.
        calculator: A `PotentialCalculator` gets them in batches, any other one by one.

    Raises:
        ValueError: The calculator refuses a structure.
    """
    if isinstance(calculator, PotentialCalculator) and not isinstance(
        calculator, DividedCalculator
    ):
        found = [one for batch in _group(structures) for one in calculator.predict(batch)]
    else:
        wanted = ("energy", "forces")
        found = [{n: calculator.get_property(n, atoms) for n in wanted} for atoms in structures]
    for atoms, results in zip(structures, found, strict=True):
        energy, forces = float(results["energy"]), results["forces"]
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)


def _group(structures: Sequence[Atoms]) -> Iterator[list[Atoms]]:
    """Yield groups of structures to calculate together, in their order."""
    group: list[Atoms] = []
    for atoms in structures:
        if group and sum(map(len, group)) + len(atoms) > _BATCH_ATOMS:
            yield group
            group = []
        group.append(atoms)
    if group:
        yield group
