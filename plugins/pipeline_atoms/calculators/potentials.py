"""Trained potentials, loaded from a run or from a `model.pt` alone."""

from dataclasses import dataclass
from pathlib import Path

import torch

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.config.inference import InferOptions
from pipeline_atoms.potential.potential import Potential
from pipeline_core.config.experiments import BASE, ExperimentFile
from pipeline_core.config.renamed import upgrade_options
from pipeline_core.config.yaml_files import validate_content
from pipeline_core.evaluation.trained import load_trained_weights
from pipeline_core.project.lineage import require_current_model
from pipeline_core.project.run import Run
from pipeline_core.registry import Registry
from pipeline_core.task import build_task
from pipeline_core.training.model_file import load_model, upgrade_model


@dataclass(frozen=True)
class TrainedPotential:
    """A potential with the metadata needed to use it.

    Attributes:
        module: The potential with trained weights, on the CPU.
        graph: Cutoffs of the graph that it expects.
        elements: Chemical symbols of the elements that it was trained on.
        dtype: Type of its parameters.
    """

    module: Potential
    graph: GraphOptions
    elements: tuple[str, ...]
    dtype: torch.dtype


def load_potential(run: Run) -> TrainedPotential:
    """Return the trained potential of a run.

    Raises:
        ValueError: `run.model` is missing, not of this run, or not a potential.
    """
    kind = run.model_info.data_kind
    if kind != "structure":
        raise ValueError(
            f"{run.model}: a model of plugin {run.model_info.name!r} takes samples of the kind "
            f"{kind!r}, not atoms, so it is not a calculator; its experiment uses it in the "
            "stage infer, or the plugin must implement the hook calculator(run, device)"
        )
    content = load_model(run.model, run.model_info)
    require_current_model(run)
    module = build_task(run, content["metadata"]).module
    if not isinstance(module, Potential):
        raise ValueError(
            f"{run.model}: a model of plugin {run.model_info.name!r} ({type(module).__name__}) is "
            "not an interatomic potential; the plugin must implement the hook calculator(run, "
            "device)"
        )
    load_trained_weights(module, content, run.model)
    graph, dtype = run.get_section("graph", GraphOptions), getattr(torch, content["dtype"])
    return TrainedPotential(module, graph, tuple(content["elements"]), dtype)


def make_file_run(path: Path, registry: Registry, head: str | None = None) -> Run:
    """Return a run that consists of a model file alone.

    It has the model's own options and the defaults for all else, no dataset, and `path` for its
    model.

    Args:
        path: A `model.pt`.
        registry: The plugins.
        head: Name of the head to predict with, if the model has several.

    Raises:
        ValueError: The file is not a model, has no heads to choose from, or its plugin is not
            installed.
    """
    content = load_model(path)
    info = registry.get_model_info(content["plugin"])
    metadata = upgrade_model(content, info, path)["metadata"]
    # The metadata of a model that is not a potential may have other keys.
    stored = {
        key: metadata.get(name, {}) for key, name in (("model", "options"), ("graph", "graph"))
    }
    sections = {
        key: validate_content(
            kind, upgrade_options(stored[key], kind) if key in stored else {}, path
        )
        for key, kind in info.section_models.items()
    }
    if head is not None:
        infer = sections["infer"]
        if not isinstance(infer, InferOptions):
            raise ValueError(f"{path}: a model of plugin {info.name!r} has no heads; name none")
        sections["infer"] = infer.model_copy(update={"head": head})
    return Run(
        experiment=content["experiment"],
        variant=BASE,
        label=info.name,
        file=ExperimentFile(description="A trained model", plugin=info.name),
        model_info=info,
        dataset=None,
        sections=sections,
        registry=registry,
        folder=path.parent,
        graph=path.parent / "graph.h5",
        partition=path.parent / "partition.h5",
        model=path,
        metadata=metadata,
    )
