"""Molecular dynamics with our calculator of MACE, for `_worker.py`."""

from typing import Any

import torch
from _dynamics import Simulation
from _infer_ours import load_network
from _mace_subjects import Arrays

from pipeline_core.config.sections import GraphOptions
from pipeline_core.inference.calculator import PotentialCalculator


class Dynamics(Simulation):
    """A cell with the network, or with the option `compiled` what `infer.compile` makes of it."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        graph = GraphOptions(cutoff=options["model"]["cutoff"])
        module, dtype = load_network(arrays, options), getattr(torch, options["dtype"])
        calculator = PotentialCalculator(module, graph, options["elements"], dtype=dtype)
        super().__init__(arrays, calculator, options["steps"], options["runs"])
