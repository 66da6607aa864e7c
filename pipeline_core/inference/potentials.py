"""Trained potentials, from a run or from a `model.pt` alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pipeline_core.config.experiments import BASE, ExperimentFile
from pipeline_core.config.sections import ENGINE_SECTIONS, GraphOptions
from pipeline_core.config.yaml_files import validated
from pipeline_core.evaluation.trained import give_weights
from pipeline_core.potential import Potential
from pipeline_core.registry import Registry
from pipeline_core.run import Project, Run
from pipeline_core.training.checkpoint import load_model
from pipeline_core.training.tasks import build_task


@dataclass(frozen=True)
class TrainedPotential:
    """A potential and what one must know to use it.

    Attributes:
        module: With trained weights, on the CPU.
        graph: Cutoffs of the graph that it expects.
        elements: Chemical symbols of the elements that it was trained on.
        dtype: Type of its parameters.
    """

    module: Potential
    graph: GraphOptions
    elements: tuple[str, ...]
    dtype: torch.dtype


def potential_of_run(run: Run) -> TrainedPotential:
    """Return the trained potential of a run.

    Raises:
        ValueError: `run.model` is missing, not of this run, or not a potential.
    """
    return _trained(run, build_task(run).module, load_model(run.model), run.model)


def potential_from_file(path: Path, registry: Registry) -> TrainedPotential:
    """Return the trained potential in a file, rebuilt by its plugin without a dataset.

    Args:
        path: A `model.pt`.
        registry: The plugins.

    Raises:
        ValueError: The file is not a model, its plugin is not installed, or it is not a potential.
    """
    content = load_model(path)
    run = _run_without_dataset(path, content, registry)
    with torch.random.fork_rng(devices=[]):  # the caller's generator is none of our business
        task = registry.hook("task", run.model_info.name)(run=run)
    if task is None:
        raise ValueError(f"{path}: plugin {run.model_info.name!r} gives no task")
    return _trained(run, task.module, content, path)


def _trained(run: Run, module: nn.Module, content: dict[str, Any], path: Path) -> TrainedPotential:
    if not isinstance(module, Potential):
        raise ValueError(
            f"{path}: a model of plugin {run.model_info.name!r} ({type(module).__name__}) is no "
            "interatomic potential; the plugin must implement the hook calculator(run, device)"
        )
    give_weights(module, content, path)
    graph = run.section("graph", GraphOptions)
    dtype = getattr(torch, content["dtype"])
    return TrainedPotential(module, graph, tuple(content["elements"]), dtype)


def _run_without_dataset(path: Path, content: dict[str, Any], registry: Registry) -> Run:
    """Return a run that has the model's own options and the defaults for all else."""
    info = registry.model_info(content["plugin"])
    models = {"model": info.options, **ENGINE_SECTIONS, **info.sections}
    stored = {"model": content["metadata"]["options"], "graph": content["metadata"]["graph"]}
    sections = {key: validated(kind, stored.get(key, {}), path) for key, kind in models.items()}
    file = ExperimentFile(description="A trained model", plugin=info.name)
    project = Project(path.parent, path.parent, registry)
    return Run(project, content["experiment"], BASE, file, info, None, sections)
