"""Ranks share the gradient, and nothing else depends on how many there are.

Table 3 of Qiu et al. reports that the gap between training and test losses shrinks from 3.1e-4 with
one GPU to 8e-5 with eight, and credits this to the average of gradients over GPUs. If the loss is a
mean of squares, the average of the gradients of equal shards of a full batch is the gradient of
that batch: 1, 2 and 4 ranks follow one trajectory up to rounding, with one gap. The paper does not
define its loss.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from forked_ranks import train_by_command
from pipeline_htfbr.training import train_surface
from plugins.htfbr.fits import read_result
from tiers import run_first

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

SECTIONS = {
    "model": {"rank": 4},
    "graph": {"degree": 3},
    "train": {
        "method": "resident",
        "epochs": 60,
        "record_every": 5,
        "precision": "64-true",
        "optimizer": {"name": "adamw", "lr": 0.05, "weight_decay": 0.01},
        "schedule": {"name": "step", "every": 20},
    },
}


def bump(x):
    return np.exp(-np.square(x).sum(1)) + 0.3 * x[:, 0] * x[:, 1]


def slope(x):
    return -2 * x * np.exp(-np.square(x).sum(1))[:, None] + 0.3 * x[:, [1, 0, 2]] * [1, 1, 0]


@pytest.mark.parametrize(
    "case",
    run_first(
        [
            # Of 33 points two ranks have shares that differ.
            ({"batch_size": 33, "clip_norm": 0.5, "gradient_weight": 0.2}, (2,)),
            ({}, (2, 4)),
        ]
    ),
)
def test_any_number_of_ranks_follows_one_trajectory(project, points, tmp_path, case):
    train, counts = case
    data = points(bump, 198, gradient=slope)
    sections = SECTIONS | {"train": SECTIONS["train"] | train}
    alone = replace(project(tmp_path / "alone", data, sections), device="cpu")
    train_surface(alone)
    weights, expected = read_result(alone)
    for n in counts:
        run = project(tmp_path / str(n), data, sections)
        train_by_command(tmp_path / str(n), "points", n)
        actual, lines = read_result(run)
        assert len(lines) == len(expected) == 12
        for ours, theirs in zip(lines, expected, strict=True):
            for key in ("train", "val", "mae", "grad_norm", "lr", "epoch"):
                assert ours[key] == pytest.approx(theirs[key], rel=1e-10), (n, key)
            gap = ours["val"]["loss"] - ours["train"]["loss"]
            assert gap == pytest.approx(theirs["val"]["loss"] - theirs["train"]["loss"], rel=1e-8)
        for name, tensor in weights.items():
            torch.testing.assert_close(actual[name], tensor, rtol=1e-10, atol=1e-10)
        assert [path.name for path in run.state.iterdir()] == ["last.pt"]


def test_ranks_continue_what_one_has_begun(project, points, tmp_path):
    data = points(bump, 198)
    half = SECTIONS | {"train": SECTIONS["train"] | {"epochs": 30}}
    whole = replace(project(tmp_path / "whole", data, SECTIONS), device="cpu")
    train_surface(whole)
    train_surface(replace(project(tmp_path / "parts", data, half), device="cpu"))
    parts = project(tmp_path / "parts", data, SECTIONS)
    train_by_command(tmp_path / "parts", "points", 2)
    (a, lines_a), (b, lines_b) = read_result(whole), read_result(parts)
    assert [line["epoch"] for line in lines_a] == [line["epoch"] for line in lines_b]
    torch.testing.assert_close(a["transfers"], b["transfers"], rtol=1e-10, atol=1e-10)


def test_ranks_solve_one_problem(project, points, tmp_path):
    """The solver adds normal equations over ranks; each way to the solution is the same."""
    data = points(bump, 398, gradient=slope)
    solver = {"method": "solver", "precision": "64-true", "gradient_weight": 0.3}
    sections = {"model": {"rank": "adaptive"}, "graph": {"degree": 5}, "train": solver}
    alone = project(tmp_path / "alone", data, sections)
    train_surface(alone)
    run = project(tmp_path / "two", data, sections)
    train_by_command(tmp_path / "two", "points", 2)
    (_, expected), (_, actual) = read_result(alone), read_result(run)
    assert [line["step"] for line in actual] == [line["step"] for line in expected]
    assert {"ridge", "truncated", "polish"} <= {line["step"] for line in actual}
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours["val"]["loss"] == pytest.approx(theirs["val"]["loss"], rel=1e-5)
