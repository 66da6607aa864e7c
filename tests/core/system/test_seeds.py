"""Seeds, orders, states of generators, determinism."""

import os
import random

import numpy as np
import pytest
import torch

from pipeline_core.system.seeds import (
    capture_generators,
    draw_order,
    seed_everything,
    set_generator_states,
    use_deterministic,
)

CPU = torch.device("cpu")


def draw_numbers():
    return random.random(), np.random.rand(), torch.rand(()).item()  # noqa: S311, NPY002


def test_one_seed_rules_all_generators(tmp_path):
    seed_everything(3, 1)
    first = draw_numbers()
    seed_everything(3, 1)
    assert draw_numbers() == first
    seed_everything(3, 2)
    assert all(a != b for a, b in zip(draw_numbers(), first, strict=True))
    torch.save(capture_generators(CPU), tmp_path / "states")
    expected = draw_numbers()
    seed_everything(0)
    set_generator_states(torch.load(tmp_path / "states", weights_only=True), CPU)
    assert draw_numbers() == expected  # they continue where they were


def test_order_depends_on_seed_and_epoch_alone():
    order = draw_order(50, 1, 7)
    seed_everything(0)
    assert order.tolist() == draw_order(50, 1, 7).tolist()
    assert sorted(order) == list(range(50))
    assert order.tolist() != draw_order(50, 1, 8).tolist()
    assert order.tolist() != draw_order(50, 2, 7).tolist()


def test_determinism_ends_with_its_block(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with use_deterministic(True):
        assert torch.are_deterministic_algorithms_enabled()
        with use_deterministic(False):
            assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ


def test_an_operation_without_deterministic_algorithm_is_explained():
    without = pytest.raises(ValueError, match=r"train.deterministic: .*set it to false")
    with without, use_deterministic(True):
        raise RuntimeError("put_ does not have a deterministic implementation")
    with pytest.raises(RuntimeError, match="out of memory"), use_deterministic(True):
        raise RuntimeError("out of memory")
    assert not torch.are_deterministic_algorithms_enabled()
