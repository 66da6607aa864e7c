"""Molecular dynamics with the calculator of mace-torch, for `_worker.py` in its environment."""

from typing import Any

from _dynamics import Simulation
from _infer_peer import load_network
from _mace_subjects import Arrays
from mace.calculators import MACECalculator


class Dynamics(Simulation):
    """A cell with `MACECalculator` and its own settings but for the type of numbers."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        model, dtype = load_network(arrays, options), options["dtype"]
        calculator = MACECalculator(models=model, device="cpu", default_dtype=dtype)
        super().__init__(arrays, calculator, options["steps"], options["runs"])
