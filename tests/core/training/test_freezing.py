"""Frozen parts keep their bits, and the others are trained as torch trains them alone."""

import pytest
from torch import nn

from pipeline_core.training.freezing import freeze


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
