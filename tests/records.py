"""What trainings leave behind, as tests look at it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pipeline_core.project.run import Run
from pipeline_core.training.model_file import load_model


def read_history(run: Run) -> list[dict[str, Any]]:
    """Return the records of the epochs of a run."""
    return [json.loads(line) for line in run.history.read_text(encoding="utf-8").splitlines()]


def read_weights(run: Run) -> Mapping[str, Tensor]:
    """Return the weights of the model of a run."""
    weights: Mapping[str, Tensor] = load_model(run.model)["weights"]
    return weights


def assert_same_weights(
    ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], rtol: float = 0, atol: float = 0
) -> None:
    """Compare all weights, to the last bit if nothing is allowed; a type may be wider."""
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(
            ours[name], tensor, rtol=rtol, atol=atol, msg=lambda text, name=name: f"{name}: {text}"
        )
