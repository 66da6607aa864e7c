"""A trained potential rebuilt from its file alone, without the data that it was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from pipeline_core.config.experiments import BASE, ExperimentFile
from pipeline_core.config.sections import ENGINE_SECTIONS, GraphOptions
from pipeline_core.config.yaml_files import validated
from pipeline_core.potential import Potential
from pipeline_core.registry import Registry
from pipeline_core.run import Project, Run
from pipeline_core.training.checkpoint import load_model


@dataclass(frozen=True)
class TrainedPotential:
    """A potential and what one must know to use it.

    Attributes:
        module: With trained weights, on the CPU.
        graph: Cutoffs of the graph that it expects.
        elements: Chemical symbols of the elements that it was trained on.
        dtype: Floating-point type of the training.
    """

    module: Potential
    graph: GraphOptions
    elements: tuple[str, ...]
    dtype: torch.dtype


def rebuilt_potential(path: Path, registry: Registry) -> TrainedPotential:
    """Build the module with its plugin and load the weights.

    Args:
        path: A `model.pt`.
        registry: The plugins.

    Raises:
        ValueError: The file is not a model, its plugin is not installed, or it is not a potential.
    """
    model = load_model(path)
    metadata = model["metadata"]
    run = _run_without_data(path, model["plugin"], metadata, registry)
    module = registry.hook("task", run.model_info.name)(run=run).module
    if not isinstance(module, Potential):
        raise ValueError(
            f"{path}: a model of the plugin {run.model_info.name!r} is no interatomic potential "
            f"({type(module).__name__}) and gives no calculator"
        )
    module.load_state_dict(model["weights"])
    graph = run.section("graph", GraphOptions)
    return TrainedPotential(module, graph, tuple(model["elements"]), getattr(torch, model["dtype"]))
