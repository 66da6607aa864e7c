"""The activation: C and plain torch, in every order of derivatives.

Oracles: torch's own function in double precision with autograd, and finite differences.
"""

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck
from torch.library import opcheck
from torch.nn import functional
from torch.testing import assert_close

from pipeline_kernels.compiler import LEVELS
from pipeline_kernels.message.silu import silu
from pipeline_kernels.message.silu.op import _curvature

EPSILON = {torch.float32: 2e-6, torch.float64: 1e-14}
Z = torch.linspace(-30, 30, 13, dtype=torch.float64)


def draw(size, dtype=torch.float64):
    """The argument and the gradient by the result; far out, where a sigmoid ends, too."""
    generator = torch.Generator().manual_seed(size)
    z, g = torch.randn(2, size, generator=generator, dtype=torch.float64).unbind()
    z *= 10.0 ** (torch.arange(size) % 7 - 3)
    return [z.to(dtype).requires_grad_(), g.to(dtype).requires_grad_()]


def differentiate(function, z, g):
    """The value, its derivative, and those of the derivative, as a loss of forces has them."""
    y = function(z)
    (first,) = torch.autograd.grad(y, z, g, create_graph=True)
    d = torch.cos(torch.arange(z.numel(), dtype=torch.float64)).view(z.shape).to(z.dtype)
    by_g, by_z = torch.autograd.grad(first, [g, z], d)
    return [y.detach(), first.detach(), by_g, by_z]


def compare(leaves):
    exact = [x.detach().double().requires_grad_() for x in leaves]
    ours, theirs = differentiate(silu, *leaves), differentiate(functional.silu, *exact)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == leaves[0].dtype
        error = EPSILON[one.dtype]
        assert_close(one.double(), other, rtol=error, atol=5 * error)


@settings(max_examples=40, deadline=None)
@given(size=st.integers(0, 100), dtype=st.sampled_from([*EPSILON]))
@example(size=4096 * 3 + 5, dtype=torch.float32)  # several pieces, and a tail
@example(size=4096 * 3 + 5, dtype=torch.float64)
def test_derivatives_are_those_of_torch(size, dtype):
    compare(draw(size, dtype))


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("level", LEVELS)
def test_processors_with_shorter_vectors(use_level, level, dtype):
    with use_level(level):
        compare(draw(101, dtype))


def test_finite_differences_give_the_derivatives():
    z = Z.clone().requires_grad_()

    def differentiate_once(z):
        return torch.autograd.grad(silu(z).sum(), z, create_graph=True)[0]

    assert gradcheck(silu, z)
    assert gradgradcheck(silu, z)
    assert gradgradcheck(differentiate_once, z)


def test_operands_may_lie_in_any_way():
    z = torch.randn(12, 30, dtype=torch.float64).T.requires_grad_()
    g = torch.ones((), dtype=torch.float64).requires_grad_()
    ours = torch.autograd.grad(silu(z), z, g.expand(30, 12), create_graph=True)[0]
    theirs = torch.autograd.grad(functional.silu(z), z, g.expand(30, 12), create_graph=True)[0]
    assert_close(ours, theirs)
    pairs = (torch.autograd.grad(x.sum(), [g, z]) for x in (ours, theirs))
    for one, other in zip(*pairs, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("dtype", EPSILON)
def test_extremes_are_those_of_torch(dtype):
    far = [10.0**n for n in range(1, 38)]
    z = torch.tensor([math.nan, math.inf, -math.inf, *far, *(-x for x in far)], dtype=dtype)
    leaves = z.requires_grad_(), torch.ones_like(z, requires_grad=True)
    pairs = zip(differentiate(silu, *leaves), differentiate(functional.silu, *leaves), strict=True)
    for one, other in pairs:
        assert_close(one, other, equal_nan=True, rtol=EPSILON[dtype], atol=EPSILON[dtype])


def test_little_is_kept_for_the_second_derivative():
    """The argument and the gradient of the result; torch's own keeps six."""
    z = Z.clone().requires_grad_()
    kept = set()

    def note(x):
        kept.add(x.data_ptr())
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        torch.autograd.grad(silu(z).square().sum(), z, create_graph=True)
    assert len(kept) <= 4


def test_one_kernel_makes_the_last_derivative(use_implementation):
    leaves = draw(9)
    with use_implementation("C"), torch.profiler.profile() as seen:
        differentiate(silu, *leaves)
    names = [event.name for event in seen.events()]
    assert names.count("pipeline_kernels::silu_curvature") == 1
    assert "aten::sigmoid" not in names


def test_threads_change_no_bit(use_threads):
    leaves, results = draw(50_001, torch.float32), []
    for n_threads in (1, 3):
        with use_threads(n_threads):
            results.append(_curvature(leaves[1].detach(), *(x.detach() for x in leaves[::-1])))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_without_a_compiler_torch_calculates(use_implementation):
    with use_implementation("reference"):
        compare(draw(50))


def test_types_that_c_does_not_know_are_those_of_torch():
    leaves = [x.detach().clamp(-5, 5).bfloat16().requires_grad_() for x in draw(50)]
    exact = [x.detach().double().requires_grad_() for x in leaves]
    ours, theirs = differentiate(silu, *leaves), differentiate(functional.silu, *exact)
    for one, other in zip(ours, theirs, strict=True):
        assert_close(one, other.bfloat16(), rtol=0.05, atol=0.05)


@pytest.mark.slow
def test_torch_accepts_the_operator():
    z, g = (x.detach() for x in draw(20))
    opcheck(torch.ops.pipeline_kernels.silu_curvature, (g, g, z))
