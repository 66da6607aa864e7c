"""Trained models as ASE calculators, from their file alone."""

from __future__ import annotations

from pathlib import Path

import torch
from ase.calculators.calculator import Calculator

from pipeline_core.builtin import load_registry
from pipeline_core.inference.calculator import make_calculator
from pipeline_core.inference.potentials import load_potential, make_file_run
from pipeline_core.registry import Registry
from pipeline_core.seeds import capture_generators, set_generator_states


def load_calculator(
    path: str | Path,
    device: str = "cpu",
    dtype: torch.dtype | None = None,
    registry: Registry | None = None,
) -> Calculator:
    """Load a trained model as an ASE calculator; needs nothing but the file and the model's plugin.

    Args:
        path: A `model.pt`.
        device: A torch device name.
        dtype: Floating-point type of a `Potential`; the one of the training if None.
        registry: Where to look for the plugin; the installed plugins if None.

    Raises:
        ValueError: The file is not a model, its plugin is not installed, or it is not a potential
            and its plugin has no calculator of its own.
    """
    registry, cpu = registry or load_registry(), torch.device("cpu")
    run = make_file_run(Path(path), registry)
    states = capture_generators(cpu)  # the caller's generators are none of our business
    try:
        if dtype is not None:
            return make_calculator(load_potential(run), device, dtype)
        return registry.select_hook("calculator", run.model_info.name)(run=run, device=device)
    finally:
        set_generator_states(states, cpu)
