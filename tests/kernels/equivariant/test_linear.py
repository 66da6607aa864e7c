"""Linear maps of equivariant features: C and PyTorch, in every order of derivatives.

Oracles: e3nn's formula as a sum over each row with the weights of its group; what rotations change;
finite differences.
"""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.library import opcheck
from torch.testing import assert_close

from pipeline_kernels.equivariant.linear import LinearPlan, equivariant_linear, op, reference
from pipeline_kernels.equivariant.wigner import compute_edge_frames, rotate
from pipeline_kernels.native import UnavailableError

EPSILON = {torch.float32: 1e-5, torch.float64: 1e-13}


class Case:
    """A map with random features and weights."""

    def __init__(self, sizes, counts, channels, unused=0, dtype=torch.float64):
        generator = torch.Generator().manual_seed(0)
        self.plan = LinearPlan(tuple(counts), LinearPlan.of(counts).dim_in + unused)
        self.factors = [0.5 + degree for degree in range(len(counts))]
        (C, D), groups = channels, (len(sizes),) if isinstance(sizes, list) else ()
        self.sizes = sizes if groups else [sizes]  # a number: all rows have the same weights
        self.offsets = torch.tensor([0, *sizes]).cumsum(0) if groups else None
        shapes = [(sum(self.sizes), self.plan.dim_in, C)]
        shapes += [(*groups, n * C, D) for n in counts]
        draws = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
        self.leaves = [x.to(dtype).requires_grad_() for x in draws]

    def call(self, x, *weights):
        return equivariant_linear(x, weights, self.plan, self.factors, self.offsets)

    def sum_rows(self, x, *weights):
        """The formula of the package, row by row."""
        group = torch.repeat_interleave(torch.tensor(self.sizes))
        by_degree, row = [], 0
        for degree, (W, count) in enumerate(zip(weights, self.plan.counts, strict=True)):
            size = 2 * degree + 1
            paths = x[:, row : row + count * size].unflatten(1, (count, size))
            own = W.view(-1, count, *x.shape[2:], W.shape[-1])[group] * self.factors[degree]
            by_degree.append(torch.einsum("npmc,npcd->nmd", paths, own))
            row += count * size
        return torch.cat(by_degree, dim=1)


def differentiate(function, leaves):
    """The map, first derivatives, and those of their squares, as a loss of forces has them."""
    y = function(*leaves)
    g = torch.sin(torch.arange(y.numel(), dtype=torch.float64)).view(y.shape).to(y.dtype)
    first = torch.autograd.grad((y * g + y.square() / 2).sum(), leaves, create_graph=True)
    second = torch.autograd.grad(sum(x.square().sum() for x in first), leaves)
    return [y.detach(), *(x.detach() for x in first), *second]


def compare(case):
    exact = [x.detach().double().requires_grad_() for x in case.leaves]
    ours, theirs = differentiate(case.call, case.leaves), differentiate(case.sum_rows, exact)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == case.leaves[0].dtype
        assert one.shape == other.shape
        size = max(1.0, float(other.abs().max())) if other.numel() else 1.0
        assert_close(one.double(), other, rtol=0, atol=EPSILON[one.dtype] * size)


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.integers(0, 40) | st.lists(st.integers(0, 20), min_size=1, max_size=4),
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    channels=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    unused=st.integers(0, 2),
    dtype=st.sampled_from([*EPSILON]),
)
@example(sizes=150, counts=[2, 3], channels=(128, 128), unused=0, dtype=torch.float32)
@example(sizes=[0], counts=[1, 1], channels=(5, 3), unused=1, dtype=torch.float64)
def test_values_and_derivatives_are_those_of_the_formula(sizes, counts, channels, unused, dtype):
    compare(Case(sizes, counts, channels, unused, dtype))


@pytest.mark.parametrize("sizes", [[3, 1, 6], 10])
@pytest.mark.parametrize("way", ["_multiply_pieces", "_multiply_padded"])
def test_plain_torch_is_the_formula(way, sizes, monkeypatch):
    """What other devices than CPUs do."""
    monkeypatch.setattr(reference, "_multiply_pieces", getattr(reference, way))
    case = Case(sizes, [2, 1, 1], (4, 5), unused=1)

    def call(x, *weights):
        return reference.linear(x, weights, case.plan, case.factors, case.offsets)

    for one, other in zip(
        differentiate(call, case.leaves), differentiate(case.sum_rows, case.leaves), strict=True
    ):
        assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [[9, 0, 40], 70])
@pytest.mark.parametrize("compiled", [True, False], ids=["C", "plain"])
def test_a_bias_is_added_to_degree_zero(compiled, sizes, dtype, monkeypatch):
    """Added by torch to the first component of each row; its gradient is the sum of theirs."""
    if not compiled:
        monkeypatch.setattr(op, "DTYPES", ())
    case = Case(sizes, [2, 1, 1], (5, 37), dtype=dtype)
    x, *weights = case.leaves
    bias = torch.randn(37, dtype=dtype, requires_grad=True)
    told = case.plan, case.factors, case.offsets
    y, plain = equivariant_linear(x, weights, *told, bias), case.call(x, *weights)
    added = torch.cat([plain[:, :1] + bias, plain[:, 1:]], 1)
    assert_close(y, added)
    direction = torch.randn_like(y)
    (by_bias,) = torch.autograd.grad(y, bias, direction)
    assert_close(by_bias, direction[:, 0].sum(0))


@pytest.mark.parametrize("sizes", [[2, 1], 3])
def test_finite_differences_give_the_derivatives(sizes):
    case = Case(sizes, [1, 2], (2, 3), unused=1)
    assert torch.autograd.gradcheck(case.call, case.leaves)
    assert torch.autograd.gradgradcheck(case.call, case.leaves)


def test_threads_change_no_bit():
    case = Case([150, 7, 90], [1, 2], (64, 64), dtype=torch.float32)
    before = torch.get_num_threads()
    try:
        results = []
        for n_threads in (1, 3):
            torch.set_num_threads(n_threads)
            results.append(differentiate(case.call, case.leaves))
    finally:
        torch.set_num_threads(before)
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_rotations_before_or_after_are_the_same():
    case = Case(20, [1] * 5, (5, 6))
    x, *weights = case.leaves
    frames = compute_edge_frames(torch.randn(20, 3, dtype=torch.float64), 4)
    assert_close(case.call(rotate(x, frames), *weights), rotate(case.call(x, *weights), frames))


@pytest.mark.parametrize("sizes", [[3, 1, 6], 10])
def test_without_a_compiler_the_formula_runs(sizes, monkeypatch):
    case = Case(sizes, [2, 1], (4, 5), unused=1)
    expected = differentiate(case.call, case.leaves)

    def fail(*_args, **_macros):
        raise UnavailableError("none")

    monkeypatch.setattr(op.cpu, "load_library", fail)
    for one, other in zip(differentiate(case.call, case.leaves), expected, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("sizes", [[3, 2], 5])
def test_torch_accepts_the_operators(sizes):
    case = Case(sizes, [2, 1], (4, 5))
    x, *weights = case.leaves
    told = case.offsets, case.plan.encode(), case.factors
    bias = torch.randn(5, dtype=torch.float64, requires_grad=True)
    opcheck(torch.ops.pipeline_kernels.equivariant_linear, (x, weights, bias, *told, False))
    g = torch.randn(5, 4, 5, dtype=torch.float64)
    opcheck(torch.ops.pipeline_kernels.equivariant_linear, (g, weights, None, *told, True))
    fixed = x.detach(), g
    opcheck(torch.ops.pipeline_kernels.equivariant_linear_weights, (*fixed, *told))


def test_what_does_not_fit_is_refused():
    case = Case([3], [2, 1], (4, 5))
    x, *weights = case.leaves
    with pytest.raises(ValueError, match=r"x: expected \(n, 5, C\) for the plan, got \(3, 4, 4\)"):
        case.call(x[:, :4], *weights)
    with pytest.raises(ValueError, match=r"one for each of 2 degrees, got 1 and 2"):
        case.call(x, weights[0])
    with pytest.raises(ValueError, match=r"weights\[1\]: expected \(1, 4, 5\)"):
        case.call(x, weights[0], weights[1][:, :3])
    told, short = (case.plan, case.factors, case.offsets), torch.zeros(4, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"bias: expected \(5,\) of torch.float64, got \(4,\)"):
        equivariant_linear(x, weights, *told, short)
    with pytest.raises(ValueError, match=r"at most 4 components as they come in, got \(2, 1\)"):
        LinearPlan((2, 1), 4)
