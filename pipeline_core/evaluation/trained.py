"""Modules with trained weights, for the hooks `evaluate`, `infer` and `profile`."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from pipeline_core.project.lineage import require_current_model
from pipeline_core.project.run import Run
from pipeline_core.task import Task, build_task
from pipeline_core.training.model_file import check_probe, load_model, load_weights

logger = logging.getLogger(__name__)


def load_trained_task(run: Run, device: torch.device) -> Task:
    """Return the task of a run with trained weights, its module on `device`.

    Raises:
        ValueError: `run.model` is missing or damaged, or it is not the model of this run.
    """
    content = load_model(run.model, run.model_info)
    require_current_model(run)
    if unfinished := json.loads(content["provenance"]).get("unfinished"):
        logger.warning("%s: of an unfinished training (%s)", run.model, unfinished)
    task = build_task(run, content["metadata"])
    load_trained_weights(task.module, content, run.model)
    task.module.to(device)
    return task


def load_trained_weights(module: nn.Module, content: Mapping[str, Any], path: Path) -> None:
    """Give a freshly built module the type and the weights of a trained one, for use.

    Args:
        module: On the CPU, as its plugin builds it.
        content: Result of `load_model`.
        path: The file, for messages.

    Raises:
        ValueError: The weights do not fit, or the module does not reproduce the predictions that
            were stored with them.
    """
    check_probe(module, content, path)
    if content["dtype"] == "float64":
        module.double()
    load_weights(module, content, path)
    module.eval()


def require_finite(results: Mapping[str, Any]) -> None:
    """Check that predictions are finite.

    Raises:
        ValueError: One is not finite.
    """
    wrong = [name for name, values in results.items() if not np.isfinite(values).all()]
    if wrong:
        raise ValueError(
            f"the model predicts {' and '.join(wrong)} that are not finite: the structure is far "
            "from those that it was trained on; look at its distances"
        )
