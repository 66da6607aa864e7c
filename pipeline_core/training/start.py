"""Initial weights of a training: random, from a trained model (fine-tuning), or published."""

import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from pipeline_core.config.sections import PUBLISHED, Section, TrainOptions
from pipeline_core.model_info import ModelInfo
from pipeline_core.project.run import Run
from pipeline_core.training.freezing import freeze
from pipeline_core.training.model_file import check_probe, load_model, load_weights
from pipeline_core.training.precision import choose_dtype

logger = logging.getLogger(__name__)


@runtime_checkable
class HasReferences(Protocol):
    """A module with reference energies of free atoms, which a dataset may replace."""

    def list_references(self) -> Sequence[Tensor]:
        """Return the energies of free atoms of each head, as the module's own tensors."""
        ...

    def choose_references(self, of_dataset: Sequence[Tensor], *, always: bool) -> None:
        """Use the energies of a dataset where loaded weights have none, or always.

        Args:
            of_dataset: As `list_references` returned them before weights were loaded.
            always: Whether energies of the dataset are used wherever it has some.
        """
        ...


def start_metadata(run: Run) -> Mapping[str, Any] | None:
    """Return the metadata of the model to fine-tune; None without a model file.

    Raises:
        ValueError: The file is missing, not a model, or of a model for another graph.
    """
    start = run.get_section("train", TrainOptions).start_from
    if start is None or start.startswith(PUBLISHED):
        return None
    metadata: Mapping[str, Any] = load_model(Path(start), run.model_info)["metadata"]
    graph = run.sections["graph"]
    if isinstance(graph, Section):
        _require_same_graph(graph, metadata.get("graph", {}), start)
    return metadata


def _require_same_graph(graph: Section, trained: Mapping[str, Any], start: str) -> None:
    for name in graph.fixed:
        ours, theirs = getattr(graph, name), trained.get(name)
        if name in trained and ours != theirs:
            raise ValueError(
                f"{start}: a model for graph.{name}: {theirs}, but the experiment has {ours}; set "
                f"graph.{name} to {theirs}"
            )


def initialize_weights(
    module: nn.Module, options: TrainOptions, info: ModelInfo, *, fresh: bool
) -> None:
    """Set the type and the initial weights of a freshly built module.

    Parts named in `train.freeze` are frozen.

    A module with published weights may provide a method `load_published(name)`, which raises
    ValueError for an unknown name; `train.start_from` calls it as "published:NAME".

    A module may list in `replaceable` its parts that may be missing or different in the model that
    it starts from, with the outputs that come from them: such a part keeps its own weights. So a
    potential that was trained with force heads can be fine-tuned with forces as derivatives.

    Args:
        module: On the CPU.
        options: Options of the training.
        info: The model.
        fresh: False if a saved state will overwrite the weights.

    Raises:
        ValueError: The weights to start from are missing, do not fit, or do not reproduce the
            predictions that were stored with them, or the model lacks the requested reference
            energies or parts to be frozen.
    """
    start = options.start_from if fresh else None
    content, own = None, _copy_reference_energies(module)
    if start is not None and not start.startswith(PUBLISHED):
        content = _add_heads(module, load_model(Path(start), info), start)
        content = _replace_parts(module, content, start)
        check_probe(module, content, Path(start))
    if choose_dtype(options.precision) == torch.float64:
        module.double()
    if content is not None:
        load_weights(module, content, Path(str(start)))
    elif start is not None:
        _load_published(module, start.removeprefix(PUBLISHED))
    if start is not None:
        _choose_reference_energies(module, own, options)
    freeze(module, options.freeze, info.parts)


def _add_heads(module: nn.Module, content: dict[str, Any], path: str) -> dict[str, Any]:
    """Add the further heads of a module to a loaded model.

    A module that supports this has a method `add_heads(weights, metadata)`, which returns weights.
    """
    add = getattr(module, "add_heads", None)
    if add is None:
        return content
    try:
        return {**content, "weights": add(content["weights"], content["metadata"])}
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _replace_parts(module: nn.Module, content: dict[str, Any], path: str) -> dict[str, Any]:
    """Replace the replaceable parts of a loaded model by those of a module, if they differ.

    Its stored predictions are then compared without the outputs of these parts.
    """
    own, weights, outputs = module.state_dict(), content["weights"], content["probe"]["outputs"]
    parts: Mapping[str, Collection[str]] = getattr(module, "replaceable", {})
    for part, results in parts.items():
        ours, theirs = ({n for n in x if n.startswith(f"{part}.")} for x in (own, weights))
        if ours == theirs:
            continue
        logger.info(
            "%s: taken without its %s (%s)%s",
            path,
            part,
            ", ".join(sorted(theirs)) or "none",
            f"; {part} that are not trained yet take their place" if ours else "",
        )
        kept = {name: tensor for name, tensor in weights.items() if name not in theirs}
        weights = kept | {name: own[name] for name in ours}
        outputs = {name: x for name, x in outputs.items() if name not in results}
    return {**content, "weights": weights, "probe": {**content["probe"], "outputs": outputs}}


def _copy_reference_energies(module: nn.Module) -> list[Tensor]:
    """Return a copy of the energies of free atoms of each head; empty for other models."""
    listed: Sequence[Tensor] = module.list_references() if isinstance(module, HasReferences) else ()
    return [energies.clone() for energies in listed]


def _choose_reference_energies(
    module: nn.Module, of_dataset: Sequence[Tensor], options: TrainOptions
) -> None:
    """Choose between the reference energies of loaded weights and those of the dataset."""
    wanted = options.reference_energies == "dataset"
    if isinstance(module, HasReferences):
        module.choose_references(of_dataset, always=wanted)
    elif wanted:
        raise ValueError(
            "train.reference_energies: the model has no energies of free atoms; remove the key"
        )


def _load_published(module: nn.Module, name: str) -> None:
    load = getattr(module, "load_published", None)
    if load is None:
        raise ValueError(
            f"train.start_from: the model has no published weights, so {PUBLISHED}{name} cannot be "
            "loaded; give the path of a model.pt or remove the key"
        )
    load(name)
