"""Flat gradients. Oracle: torch's own gradients and its `clip_grad_norm_`."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pipeline_core.training.gradients import FlatGradients


def model_and_loss():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2).double())
    x = torch.randn(5, 3)
    return model, lambda m: m[1](m[0](x).double()).square().sum()


def test_gradients_add_up_over_backward_passes():
    model, loss = model_and_loss()
    plain = deepcopy(model)
    loss(plain).backward()
    flat = FlatGradients(model.parameters())
    for _ in range(2):  # the second round starts from zero again
        flat.zero()
        loss(model).mul(0.25).backward()
        loss(model).mul(0.75).backward()
        for ours, torchs in zip(model.parameters(), plain.parameters(), strict=True):
            assert_close(ours.grad, torchs.grad)


def test_a_parameter_without_influence_has_gradient_zero_and_a_frozen_one_none():
    used, unused, frozen = (nn.Parameter(torch.ones(2)) for _ in range(3))
    frozen.requires_grad_(False)
    flat = FlatGradients([used, unused, frozen])
    flat.zero()
    (used * frozen).sum().backward()
    assert used.grad.tolist() == [1, 1]
    assert unused.grad.tolist() == [0, 0]
    assert frozen.grad is None


@pytest.mark.parametrize("largest", [0.1, 1e6])
def test_clipping(largest):
    model, loss = model_and_loss()
    plain = deepcopy(model)
    loss(plain).backward()
    expected = nn.utils.clip_grad_norm_(plain.parameters(), largest)
    flat = FlatGradients(model.parameters())
    loss(model).backward()
    norm = flat.norm()
    flat.clip(norm, largest)
    assert_close(norm, expected.double())
    for ours, torchs in zip(model.parameters(), plain.parameters(), strict=True):
        assert_close(ours.grad, torchs.grad, rtol=1e-5, atol=1e-7)
