"""Molecular dynamics with the calculators of CHGNet, for `_worker.py`."""

from typing import Any

import numpy as np
from _dynamics import Simulation
from ase.calculators.calculator import Calculator
from ase.data import chemical_symbols

from pipeline_core.config.sections import GraphOptions

SIMULATIONS = {"simulate": (20, 1.0), "simulate_long": (10_000, 2.0)}
"""Steps, and the length of one in fs."""


class Dynamics(Simulation):
    """A cell with one of the calculators.

    Args:
        arrays: Numbers, positions, cell and velocities.
        options: The calculator (`side`), and the steps of a block.
    """

    def __init__(self, arrays: dict[str, np.ndarray], options: dict[str, Any]) -> None:
        calculator = make_calculator(options["side"])
        super().__init__(arrays, calculator, options["steps"], SIMULATIONS)


def make_calculator(side: str) -> Calculator:
    """Return the calculator of a side: published weights, compiled or not, or untrained heads."""
    if side == "peer":
        from chgnet.model import CHGNet as Peer
        from chgnet.model.dynamics import CHGNetCalculator

        model = Peer.load(use_device="cpu", verbose=False)
        return CHGNetCalculator(model, use_device="cpu")
    from _chgnet_ours import build_model

    from pipeline_core.inference.calculator import PotentialCalculator

    model = build_model(side == "heads")
    if side == "compiled":
        model = model.compile_inference()
    graph = GraphOptions(cutoff=6.0, angle_cutoff=3.0)
    return PotentialCalculator(model, graph, chemical_symbols)
