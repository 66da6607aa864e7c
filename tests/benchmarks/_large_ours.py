"""Calculators of the plugins, for `_worker.py`."""

from typing import Any

import torch
from _large_subjects import Crystals, calculate
from _mace_ours import OURS, make_network
from _mace_subjects import Arrays
from ase import Atoms
from ase.data import chemical_symbols

from pipeline_chgnet.model import CHGNet as Network
from pipeline_core.config.sections import GraphOptions
from pipeline_core.inference.calculator import PotentialCalculator
from pipeline_core.potential import Potential


class Calculated(Crystals):
    """The ASE calculator of a potential, which searches all neighbours anew.

    Args:
        arrays: Of the crystals.
        options: Name of the type (`dtype`).
        module: The potential.
        graph: Cutoffs of its graph.
    """

    def __init__(
        self, arrays: Arrays, options: dict[str, Any], module: Potential, graph: GraphOptions
    ) -> None:
        super().__init__(arrays)
        dtype = getattr(torch, options["dtype"])
        self.calculator = PotentialCalculator(module, graph, chemical_symbols, dtype=dtype)

    def predict(self, atoms: Atoms) -> dict[str, Any]:
        self.calculator.forget()
        return calculate(self.calculator, atoms)


class CHGNet(Calculated):
    """With the published weights."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        graph = GraphOptions(cutoff=6.0, angle_cutoff=3.0)
        super().__init__(arrays, options, Network.published(), graph)


class MACE(Calculated):
    """With the weights that the other side has."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        module = make_network(options)
        module.predicts = ("energy", "forces", "stress")
        state = {n.removeprefix(OURS): torch.from_numpy(x) for n, x in arrays.items() if OURS in n}
        module.load_state_dict(state)
        super().__init__(arrays, options, module, GraphOptions(cutoff=module.options.cutoff))
