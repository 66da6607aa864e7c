"""Operators called past the dispatcher give what they give through it.

Oracle: the same operator called through torch.
"""

import pytest
import torch
from torch import Tensor

from pipeline_kernels.operators import define_derivative, define_operator

CALLS = []


@define_operator("test_eager", fake=lambda tables, k: [x.new_empty(x.shape) for x in tables])
def scale(tables: list[Tensor], k: Tensor | None) -> list[Tensor]:
    CALLS.append(len(tables))
    return [x * (1 if k is None else k) for x in tables]


def backward(ctx, saved, directions):
    tables, k = saved
    by_tables, by_k = ctx.needs_input_grad
    pulled = scale(directions, k)
    products = [(x * g).sum() for x, g in zip(tables, directions, strict=True)]
    return (
        [g if need else None for g, need in zip(pulled, by_tables, strict=True)],
        sum(products) if by_k else None,
    )


define_derivative(scale, backward)


def differentiate(call, tables, k):
    """Return values, first derivatives, and those of their squares."""
    inputs = [x for x in (*tables, k) if x is not None and x.requires_grad]
    outputs = call(tables, k)
    energy = sum(x.pow(3).sum() for x in outputs)
    first = torch.autograd.grad(energy, inputs, create_graph=True)
    second = torch.autograd.grad(sum(x.square().sum() for x in first), inputs)
    return [*outputs, *first, *second]


@pytest.mark.parametrize("with_factor", [True, False])
def test_values_and_derivatives_are_those_of_the_dispatcher(with_factor):
    tables = [torch.rand(4, dtype=torch.float64, requires_grad=i != 1) for i in range(3)]
    k = torch.tensor(1.7, dtype=torch.float64, requires_grad=True) if with_factor else None
    expected = differentiate(torch.ops.pipeline_kernels.test_eager.default, tables, k)

    for value, other in zip(differentiate(scale, tables, k), expected, strict=True):
        torch.testing.assert_close(value, other, rtol=1e-14, atol=1e-14)


def test_transforms_and_modes_see_the_operator():
    seen = []

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    x = torch.rand(3)
    with Mode():
        scale([x], None)
    assert "pipeline_kernels.test_eager.default" in seen


def test_profilers_see_the_operator():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        scale([torch.rand(3)], None)
    names = [event.name for event in profile.events()]
    assert names.count("pipeline_kernels::test_eager") == 1


def test_a_saved_tensor_that_is_overwritten_is_noticed():
    x = torch.rand(3, requires_grad=True)
    y = x * 1
    (z,) = scale([y], torch.tensor(2.0, requires_grad=True))
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
