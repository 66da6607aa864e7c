"""The activation: C and plain torch, in every order of derivatives.

Oracles: torch's own function in double precision with autograd, and finite differences.
"""

import math

import pytest
import torch
from hypothesis import strategies as st
from torch.nn import functional
from torch.testing import assert_close

from kernels.contract import Call, KernelContract
from pipeline_kernels.message.silu import silu


class TestSilu(KernelContract):
    folder = "message/silu"
    tolerances = {torch.float32: 2e-6, torch.float64: 1e-14, torch.bfloat16: 0.05}
    options = {"shape": [(101,), (12, 30), (4096 * 3 + 5,)]}  # several pieces, and a tail
    few, many, empty = {"shape": (9,)}, {"shape": (50_001,)}, {"shape": (0,)}
    third = True
    random = {"shape": st.tuples(st.integers(0, 100))}
    without = {"test_refuses_what_does_not_fit": "it takes numbers of any shape and type"}

    def draw(self, generator, shape):
        """Numbers of all magnitudes: far out, where a sigmoid ends, too."""
        z = torch.randn(shape, generator=generator, dtype=torch.float64)
        z *= 10.0 ** (torch.arange(z.numel()).view(shape) % 7 - 3)
        return Call(silu, functional.silu, [z])

    def compare(self, ours, exact, tolerance):
        """Compare number by number."""
        assert_close(ours, exact.detach(), rtol=tolerance, atol=5 * tolerance)


def differentiate(function, z, g):
    """The value, its derivative, and those of the derivative, as a loss of forces has them."""
    y = function(z)
    (first,) = torch.autograd.grad(y, z, g, create_graph=True)
    by_g, by_z = torch.autograd.grad(first, [g, z], torch.ones_like(first))
    return [y.detach(), first.detach(), by_g, by_z]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extremes_are_those_of_torch(dtype):
    far = [10.0**n for n in range(1, 38)]
    z = torch.tensor([math.nan, math.inf, -math.inf, *far, *(-x for x in far)], dtype=dtype)
    leaves = z.requires_grad_(), torch.ones_like(z, requires_grad=True)
    pairs = zip(differentiate(silu, *leaves), differentiate(functional.silu, *leaves), strict=True)
    error = TestSilu.tolerances[dtype]
    for one, other in pairs:
        assert_close(one, other, equal_nan=True, rtol=error, atol=error)


def test_little_is_kept_for_the_second_derivative():
    """The argument and the gradient of the result; torch's own keeps six."""
    z = torch.randn(13, requires_grad=True)
    kept = set()

    def note(x):
        kept.add(x.data_ptr())
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        torch.autograd.grad(silu(z).square().sum(), z, create_graph=True)
    assert len(kept) <= 4


def test_one_kernel_makes_the_last_derivative(use_implementation):
    leaves = torch.randn(2, 9).unbind()
    leaves = [x.requires_grad_() for x in leaves]
    with use_implementation("C"), torch.profiler.profile() as seen:
        differentiate(silu, *leaves)
    names = [event.name for event in seen.events()]
    assert names.count("pipeline_kernels::silu_curvature") == 1
    assert "aten::sigmoid" not in names
