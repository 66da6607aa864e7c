"""The ASE calculator of mace-torch, as `_worker.py` measures it in the peer's environment."""

from typing import Any

import torch
from _large_subjects import Crystals, calculate
from _mace_peer import load, make_network
from _mace_subjects import Arrays
from ase import Atoms
from ase.data import atomic_numbers
from mace.calculators import MACECalculator


class MACE(Crystals):
    """With its own settings but for the type of numbers."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        super().__init__(arrays)
        numbers = [atomic_numbers[symbol] for symbol in options["elements"]]
        model = make_network(numbers, options["average_neighbours"], **options["model"])
        load(model, arrays)
        model = model.to(getattr(torch, options["dtype"]))
        self.calculator = MACECalculator(models=model, device="cpu", default_dtype=options["dtype"])

    def predict(self, atoms: Atoms) -> dict[str, Any]:
        return calculate(self.calculator, atoms)
