"""Frozen parts keep their bits, and the others are trained as torch trains them alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import toy_potential as toy
from core.training.test_trainer import ROUNDING, assert_same_weights, train_plainly
from pipeline_core.task import build_task
from pipeline_core.training.freezing import freeze
from pipeline_core.training.state import load_state
from pipeline_core.training.trainer import train_run


def test_the_rest_is_trained_as_an_optimizer_of_the_rest_does(tmp_path):
    run = toy.make_run(tmp_path, {"freeze": ["net.0", "unused"]})
    summary = train_run(run)
    module = build_task(run).module.double()
    start, trained = module.net[0].weight.clone(), module.net[2]
    *_, expected = train_plainly(run, module, 3, trained=trained)
    weights = load_state(run.state / "last.pt", run.model_info)["learner"]["module"]
    assert_same_weights(weights, expected.state_dict(), **ROUNDING)
    assert torch.equal(weights["net.0.weight"], start)
    assert summary["frozen"] == summary["parameters"] - sum(p.numel() for p in trained.parameters())


def make_module():
    return nn.ModuleDict({"layers": nn.ModuleList(nn.Linear(2, 2) for _ in range(11))})


def test_a_name_is_that_of_whole_components():
    assert freeze(make_module(), ["layers.1"], {}) == ["layers.1.weight", "layers.1.bias"]
    parts = {"ends": ("layers.0", "layers.10.bias")}
    assert freeze(make_module(), ["ends"], parts) == [
        "layers.0.weight", "layers.0.bias", "layers.10.bias",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["layer"], r"no 'layer'; did you mean 'layers'\? it has parts ends; parameters"),
        (["layers.11"], r"no 'layers\.11'"),
        (["ends", "layers"], "nothing is left to be trained; leave out one of ends, layers"),
    ],
)
def test_what_cannot_be_frozen_is_said(names, words):
    with pytest.raises(ValueError, match=words):
        freeze(make_module(), names, {"ends": ("layers.0", "layers.10")})
