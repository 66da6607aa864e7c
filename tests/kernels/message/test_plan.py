"""The plan of a sum over segments; oracle: numpy's stable sort and counts."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline_kernels.message import Segments

INDICES = st.integers(1, 12).flatmap(
    lambda n: st.tuples(st.lists(st.integers(0, n - 1), max_size=40), st.just(n))
)


@given(INDICES)
def test_plan_lists_the_elements_of_each_segment(case):
    values, n_segments = case
    plan = Segments.of(torch.tensor(values, dtype=torch.int64), n_segments)
    assert (plan.n_elements, plan.n_segments) == (len(values), n_segments)
    order = np.argsort(values, kind="stable")
    assert plan.order.tolist() == ([] if values == sorted(values) else order.tolist())
    counts = np.bincount(np.array(values, dtype=np.int64), minlength=n_segments)
    assert plan.offsets.diff().tolist() == counts.tolist()
    assert plan.offsets[0] == 0


def test_strided_index():
    index = torch.tensor([[2, 9], [0, 9], [1, 9]])[:, 0]
    assert Segments.of(index, 3).order.tolist() == [1, 2, 0]


def test_to_moves_every_tensor():
    plan = Segments.of(torch.tensor([1, 0]), 2).to("meta")
    assert {plan.index.device.type, plan.order.device.type, plan.offsets.device.type} == {"meta"}


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (torch.tensor([0, 3]), r"n_segments - 1 = 2, got 0 to 3"),
        (torch.tensor([2, -1]), r"got -1 to 2"),
        (torch.tensor([0, 1], dtype=torch.int32), r"expected .* of torch.int64, got .*torch.int32"),
        (torch.tensor([[0, 1]]), r"got \(1, 2\) of torch.int64"),
    ],
)
def test_bad_index_is_named(index, message):
    with pytest.raises(ValueError, match=message):
        Segments.of(index, 3)


def test_elements_need_a_segment():
    with pytest.raises(ValueError, match="n_segments - 1 = -1"):
        Segments.of(torch.tensor([0]), 0)
