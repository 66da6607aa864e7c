"""Energies and forces of many structures, in batches for a `Potential`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator
from numpy.typing import NDArray

from pipeline_atoms.calculators.calculator import PotentialCalculator
from pipeline_atoms.calculators.divided import DividedCalculator

Floats = NDArray[np.float64]

_BATCH_ATOMS: Final = 1000
"""Largest number of atoms of a batch, unless one structure has more."""


@dataclass(frozen=True)
class Evaluation:
    """Energy and forces of a structure.

    Attributes:
        energy: eV.
        forces: (n_atoms, 3) eV/Å.
    """

    energy: float
    forces: Floats


def evaluate(structures: Sequence[Atoms], calculator: Calculator) -> list[Evaluation]:
    """Calculate energies and forces of structures, without relaxation.

    Args:
        structures: Structures; they are not changed.
        calculator: A `PotentialCalculator` gets them in batches, any other one by one.

    Raises:
        ValueError: The calculator refuses a structure.
    """
    if isinstance(calculator, PotentialCalculator) and not isinstance(
        calculator, DividedCalculator
    ):
        return [
            Evaluation(float(results["energy"]), results["forces"])
            for batch in _group(structures)
            for results in calculator.predict(batch)
        ]
    return [_evaluate_one(atoms, calculator) for atoms in structures]


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


def _evaluate_one(atoms: Atoms, calculator: Calculator) -> Evaluation:
    energy = float(calculator.get_property("energy", atoms))
    return Evaluation(energy, np.array(calculator.get_property("forces", atoms)))
