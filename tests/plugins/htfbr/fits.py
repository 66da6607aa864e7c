"""A short training, what it leaves, in a form that can be compared, and the data stage."""

import numpy as np
import pytest
import torch

from pipeline_core.training.history import TIMES
from pipeline_core.training.model_file import load_model
from pipeline_htfbr.data.points import read_points
from records import read_history

SECTIONS = {
    "seed": 3,
    "model": {"rank": 4},
    "graph": {"degree": 2},
    "train": {
        "method": "resident",
        "epochs": 8,
        "record_every": 2,
        "precision": "64-true",
        "optimizer": {"name": "adamw", "lr": 0.02, "weight_decay": 1e-3},
    },
}


def import_points(run):
    """Do the data stage; return its points."""
    run.registry.select_hook("data", "htfbr")(run=run)
    return read_points(run.data)


def evaluate_polynomial(x):
    """What a tree of degree 2 and rank 4 holds exactly, eV."""
    a, b, c = x.T
    return 1 + a * b**2 - 0.5 * c * a + c**2


def slopes(x):
    a, b, c = x.T
    return np.stack([b**2 - 0.5 * c, 2 * a * b, 2 * c - 0.5 * a], axis=1)


def read_result(run):
    kept = [{k: v for k, v in line.items() if k not in TIMES} for line in read_history(run)]
    return load_model(run.model)["weights"], kept


def assert_same_bits(a, b):
    (weights_a, history_a), (weights_b, history_b) = read_result(a), read_result(b)
    assert history_a == history_b
    assert all(torch.equal(tensor, weights_b[name]) for name, tensor in weights_a.items())


def assert_close(a, b, rtol=1e-10, keys=("lr", "train", "val", "mae", "grad_norm")):
    (weights_a, history_a), (weights_b, history_b) = read_result(a), read_result(b)
    assert len(history_a) == len(history_b) > 1
    for ours, theirs in zip(history_a, history_b, strict=True):
        for key in keys:
            assert ours[key] == pytest.approx(theirs[key], rel=rtol), key
    for name, tensor in weights_a.items():
        torch.testing.assert_close(tensor, weights_b[name], rtol=rtol, atol=rtol)
