"""Feed-forward layers of equivariant features: C, plain PyTorch, and what rotations change.

Oracles: the formula in plain PyTorch, whose norm and gates are those of torch; finite differences;
Wigner matrices.
"""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.library import opcheck
from torch.testing import assert_close

from pipeline_kernels.equivariant.feed_forward import (
    Weights,
    feed_forward,
    normalise,
    op,
    reference,
)
from pipeline_kernels.equivariant.wigner import compute_edge_frames, rotate
from pipeline_kernels.native import UnavailableError

EPSILON = {torch.float32: 1e-5, torch.float64: 1e-13}


def draw(n_rows, lmax, channels, hidden, dtype=torch.float64, seed=0):
    """Features and weights; channels are (all, true scalars)."""
    generator = torch.Generator().manual_seed(seed)
    (C, n), (H, N) = channels, hidden
    n_gates = (lmax + 1) * H - N
    shapes = [(n_rows, (lmax + 1) ** 2, C), (n,), (n,), (lmax, C), (lmax + 1, C, H), (N,)]
    shapes += [(n, n_gates), (n_gates,), (lmax + 1, H, C), (n,)]
    x, *weights = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    return [y.to(dtype).requires_grad_() for y in (x, *(0.5 * w for w in weights))]


def call(function, leaves):
    return function(leaves[0], Weights(*leaves[1:]))


def differentiate(function, leaves):
    y = function(*leaves) if len(leaves) == 4 else call(function, leaves)  # the norm, the layer
    g = torch.sin(torch.arange(y.numel(), dtype=torch.float64)).view(y.shape).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, leaves, g)]


@settings(max_examples=30, deadline=None)
@given(
    n_rows=st.integers(0, 40),
    lmax=st.integers(1, 5),
    channels=st.integers(1, 20).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))),
    hidden=st.integers(1, 35).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))),
    dtype=st.just(torch.float64),  # layer norms of two random numbers may be badly conditioned
)
@example(n_rows=131, lmax=4, channels=(16, 16), hidden=(64, 64), dtype=torch.float32)
@example(n_rows=131, lmax=4, channels=(16, 12), hidden=(64, 48), dtype=torch.float64)
def test_values_and_derivatives_are_those_of_the_formula(n_rows, lmax, channels, hidden, dtype):
    leaves = draw(n_rows, lmax, channels, hidden, dtype)
    exact = [x.detach().double().requires_grad_() for x in leaves]
    ours, theirs = differentiate(feed_forward, leaves), differentiate(reference.feed_forward, exact)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == dtype
        assert one.shape == other.shape
        size = max(1.0, float(other.abs().max())) if other.numel() else 1.0
        assert_close(one.double(), other, rtol=0, atol=EPSILON[dtype] * size)


@pytest.mark.parametrize("channels", [(16, 16), (16, 12), (5, 3)])
@pytest.mark.parametrize("dtype", EPSILON)
def test_the_norm_alone_is_that_of_the_formula(channels, dtype):
    leaves = draw(57, 3, channels, (1, 1), dtype)[:4]
    exact = [x.detach().double().requires_grad_() for x in leaves]
    ours, theirs = differentiate(normalise, leaves), differentiate(reference.normalise, exact)
    for one, other in zip(ours, theirs, strict=True):
        size = max(1.0, float(other.abs().max()))
        assert_close(one.double(), other, rtol=0, atol=EPSILON[dtype] * size)


def test_finite_differences_give_the_derivatives():
    leaves = draw(3, 2, (3, 2), (4, 3))
    assert torch.autograd.gradcheck(lambda *y: call(feed_forward, y), leaves)


def test_threads_change_no_bit():
    leaves, before = draw(500, 4, (16, 16), (64, 64)), torch.get_num_threads()
    try:
        results = []
        for n_threads in (1, 3):
            torch.set_num_threads(n_threads)
            results.append(differentiate(feed_forward, leaves))
    finally:
        torch.set_num_threads(before)
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_rotations_before_or_after_are_the_same():
    x, *weights = draw(20, 4, (5, 5), (7, 7))
    frames = compute_edge_frames(torch.randn(20, 3, dtype=torch.float64), 4)
    after = rotate(call(feed_forward, [x, *weights]), frames)
    assert_close(call(feed_forward, [rotate(x, frames), *weights]), after)


def test_without_a_compiler_the_formula_runs(monkeypatch):
    leaves = draw(9, 3, (4, 3), (6, 5))
    expected = differentiate(feed_forward, leaves)

    def fail(*_args, **_macros):
        raise UnavailableError("none")

    monkeypatch.setattr(op.cpu, "load_library", fail)
    for one, other in zip(differentiate(feed_forward, leaves), expected, strict=True):
        assert_close(one, other)


def test_torch_accepts_the_operators():
    x, *weights = draw(4, 2, (3, 2), (4, 3))
    opcheck(torch.ops.pipeline_kernels.feed_forward, (x, weights))
    g, *fixed = (y.detach() for y in (x, x, *weights))
    opcheck(torch.ops.pipeline_kernels.feed_forward_gradient, (g, fixed[0], fixed[1:]))
    opcheck(torch.ops.pipeline_kernels.degree_norm, (x, weights[:3]))
    opcheck(torch.ops.pipeline_kernels.degree_norm_gradient, (g, fixed[0], fixed[1:4]))


def test_arguments_must_fit():
    x, *weights = draw(4, 2, (3, 2), (4, 3))
    with pytest.raises(ValueError, match="x: expected"):
        feed_forward(x[:, :4], Weights(*weights))
    with pytest.raises(ValueError, match="gates: expected"):
        feed_forward(x, Weights(*weights)._replace(gates=weights[5][:, :-1]))
    with pytest.raises(ValueError, match="x: expected"):
        normalise(x[:, :4], *weights[:3])
    with pytest.raises(ValueError, match="gain: expected"):
        feed_forward(x.float(), Weights(*weights))
