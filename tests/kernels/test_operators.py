"""Operators from one declaration: which implementation runs, what a derivative is given.

Oracle: f(x, [a, b], k) = k x a b and its derivatives, by hand.
"""

import sys

import pytest
import torch
from torch import Tensor
from torch.library import opcheck
from torch.testing import assert_close

from pipeline_kernels import native
from pipeline_kernels.operators import define_derivative, define_operator, differentiate_reference
from processes import finish

CALLS = []


def calculate_fast(x, pair, power):
    CALLS.append("cpu")
    if power == 3:
        raise native.UnavailableError("no C for cubes")
    return x**power * pair[0] * pair[1]


@define_operator("test_operator", cpu=calculate_fast, fake=lambda x, *_: x.new_empty(x.shape))
def operator(x: Tensor, pair: list[Tensor], power: int) -> Tensor:
    CALLS.append("reference")
    return x**power * pair[0] * pair[1]


def backward(ctx, saved, grad):
    x, (a, b), power, output = saved
    return grad * power * output / x, [grad * x**power * b, grad * x**power * a]


define_derivative(operator, backward, keep_outputs=[0])


@define_operator("test_sum", fake=lambda x, *_: x.new_empty(x.shape[1:]))
def add_rows(x: Tensor, counts: list[Tensor]) -> Tensor:
    return x.sum(0)


def spread(ctx, saved, grad):
    x, counts = saved
    assert x is None
    return (grad.expand(int(counts[0]), *grad.shape),)


define_derivative(add_rows, spread, drop=[0])


@define_operator("test_declared_together", fake=lambda x, *_: x.new_empty(x.shape))
def scale_sum(x: Tensor, *pair: *tuple[Tensor | None, list[int]]) -> Tensor:
    shift, powers = pair
    return sum(x**n for n in powers) + (0 if shift is None else shift)


@pytest.fixture
def operands():
    CALLS.clear()
    numbers = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return [x.requires_grad_() for x in numbers]


def test_runs_the_implementation_of_the_device(operands):
    x, a, b = operands
    assert torch.equal(operator(x, [a, b], 2), x**2 * a * b)
    assert CALLS == ["cpu"]
    assert operator(x.to("meta"), [a.to("meta"), b.to("meta")], 2).shape == (5,)
    assert CALLS == ["cpu"]


def test_runs_the_reference_where_c_cannot_be_had(operands):
    x, a, b = operands
    assert torch.equal(operator(x, [a, b], 3), x**3 * a * b)
    assert CALLS == ["cpu", "reference"]


@pytest.mark.slow
def test_calls_import_no_compiler_of_torch():
    finish([__file__])


def test_derivatives_by_tensors_and_lists_of_them(operands):
    assert torch.autograd.gradcheck(lambda x, a, b: operator(x, [a, b], 2), operands)
    opcheck(operator, (operands[0], operands[1:], 2))


def test_arguments_without_a_gradient_and_those_not_kept():
    x = torch.ones(3, 2, requires_grad=True)
    add_rows(x, [torch.tensor(3), torch.tensor(2)]).sum().backward()
    assert torch.equal(x.grad, torch.ones(3, 2))


@pytest.mark.parametrize("again", [True, False])
def test_plain_pytorch_differentiates_what_is_needed(operands, again):
    x, a, _ = operands
    with torch.set_grad_enabled(again):
        by_x, by_a = differentiate_reference(lambda x, a: x**2 * a, (x, a), (True, False), [a])
    assert_close(by_x, 2 * x * a * a, check_stride=False)
    assert by_a is None
    assert by_x.requires_grad == again


def test_arguments_may_be_declared_together():
    x, shift = torch.tensor([2.0]), torch.tensor([0.5])
    assert scale_sum(x, None, [1, 2]).item() == 6
    assert scale_sum(x, shift, [1, 2]).item() == 6.5
    opcheck(scale_sum, (x, shift, [1, 2]))


if __name__ == "__main__":
    ones = torch.ones(5, requires_grad=True)
    operator(ones, [ones, ones], 2).sum().backward()
    assert "torch._dynamo" not in sys.modules
