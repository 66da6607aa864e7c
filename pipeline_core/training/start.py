"""The weights that a training starts from: random, of a trained model, or published ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pipeline_core.config.sections import PUBLISHED, TrainOptions
from pipeline_core.training.checkpoint import check_probe, load_model, load_weights
from pipeline_core.training.precision import parameter_dtype


def start_metadata(options: TrainOptions) -> Mapping[str, Any] | None:
    """Return what the model to be fine-tuned says of itself; None if there is none in a file.

    Raises:
        ValueError: The file is missing, or no model.
    """
    start = options.start_from
    if start is None or start.startswith(PUBLISHED):
        return None
    found: Mapping[str, Any] = load_model(Path(start))["metadata"]
    return found


def prepare(module: nn.Module, options: TrainOptions, *, fresh: bool) -> None:
    """Give a freshly built module the type and the weights that a training starts with.

    A module whose authors have published weights may offer them by a method `load_published(name)`,
    which raises ValueError for a name that it does not know; `train.start_from` reaches it as
    "published:NAME".

    Args:
        module: On the CPU.
        options: The training.
        fresh: False if a saved state will overwrite the weights.

    Raises:
        ValueError: The weights to start from are missing, do not fit, or do not reproduce the
            predictions that were stored with them.
    """
    start = options.start_from if fresh else None
    content = None
    if start is not None and not start.startswith(PUBLISHED):
        content = load_model(Path(start))
        check_probe(module, content, Path(start))
    if parameter_dtype(options.precision) == torch.float64:
        module.double()
    if content is not None:
        load_weights(module, content, Path(str(start)))
    elif start is not None:
        _load_published(module, start.removeprefix(PUBLISHED))


def _load_published(module: nn.Module, name: str) -> None:
    load = getattr(module, "load_published", None)
    if load is None:
        raise ValueError(
            f"train.start_from: the model has no published weights, so {PUBLISHED}{name} cannot be "
            "loaded; give the path of a model.pt or remove the key"
        )
    load(name)
