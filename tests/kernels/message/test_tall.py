"""Products of a tall matrix: C and what torch multiplies, in every order of derivatives.

Oracles: torch's product of matrices in double precision; finite differences.
"""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.library import opcheck
from torch.testing import assert_close

from pipeline_kernels.message.tall import multiply_tall, op
from pipeline_kernels.native import UnavailableError

EPSILON = {torch.float32: 1e-5, torch.float64: 1e-13}


@pytest.fixture(autouse=True)
def every_size(monkeypatch):
    """Small products, too, are those of the operator."""
    monkeypatch.setattr(op, "MIN_SIZE", 0)


def draw(n_rows, depth, width, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (n_rows, depth), (depth, width)
    x, A = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    return [x.to(dtype).requires_grad_(), A.to(dtype).requires_grad_()]


def differentiate(function, leaves):
    """The product, first derivatives, and those of their squares, as a loss of forces has them."""
    y = function(*leaves)
    g = torch.sin(torch.arange(y.numel(), dtype=torch.float64)).view(y.shape).to(y.dtype)
    first = torch.autograd.grad((y * g + y.square() / 2).sum(), leaves, create_graph=True)
    second = torch.autograd.grad(sum(x.square().sum() for x in first), leaves)
    return [y.detach(), *(x.detach() for x in first), *second]


def compare(leaves):
    exact = [x.detach().double().requires_grad_() for x in leaves]
    ours = differentiate(multiply_tall, leaves)
    theirs = differentiate(torch.matmul, exact)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == leaves[0].dtype
        assert one.shape == other.shape
        size = max(1.0, float(other.abs().max())) if other.numel() else 1.0
        assert_close(one.double(), other, rtol=0, atol=EPSILON[one.dtype] * size)


@settings(max_examples=40, deadline=None)
@given(
    n_rows=st.integers(0, 60),
    depth=st.integers(1, 40),
    width=st.integers(1, 80),
    dtype=st.sampled_from([*EPSILON]),
)
@example(n_rows=700, depth=64, width=640, dtype=torch.float32)  # past the caches
@example(n_rows=700, depth=64, width=320, dtype=torch.float64)
@example(n_rows=2500, depth=64, width=130, dtype=torch.float32)  # no whole vectors
def test_products_and_derivatives_are_those_of_torch(n_rows, depth, width, dtype):
    compare(draw(n_rows, depth, width, dtype))


def test_operands_may_lie_in_any_way():
    x, A = draw(30, 12, 20)
    y = multiply_tall(x.detach().T.contiguous().T, A.detach().T.contiguous().T)
    assert_close(y, x @ A)
    by_x, by_A = torch.autograd.grad(multiply_tall(x, A).sum(), [x, A])  # expanded ones
    assert_close(by_x, A.sum(1).expand(30, 12))
    assert_close(by_A, x.sum(0)[:, None].expand(12, 20))


def test_finite_differences_give_the_derivatives():
    leaves = draw(5, 3, 4)
    assert torch.autograd.gradcheck(multiply_tall, leaves)
    assert torch.autograd.gradgradcheck(multiply_tall, leaves)


def test_threads_change_no_bit():
    leaves, before = draw(900, 64, 640, torch.float32), torch.get_num_threads()
    try:
        results = []
        for n_threads in (1, 3):
            torch.set_num_threads(n_threads)
            results.append(differentiate(multiply_tall, leaves))
    finally:
        torch.set_num_threads(before)
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_without_a_compiler_torch_multiplies(monkeypatch):
    leaves = draw(9, 3, 4)
    expected = differentiate(multiply_tall, leaves)

    def fail(*_args, **_macros):
        raise UnavailableError("none")

    monkeypatch.setattr(op.cpu, "load_library", fail)
    for one, other in zip(differentiate(multiply_tall, leaves), expected, strict=True):
        assert_close(one, other)


def test_torch_accepts_the_operators():
    x, A = draw(6, 4, 5)
    opcheck(torch.ops.pipeline_kernels.tall_product, (x, A))
    opcheck(torch.ops.pipeline_kernels.tall_sum, (x, torch.randn(6, 5, dtype=x.dtype)))


def test_what_cannot_be_multiplied_is_refused():
    x, A = draw(6, 4, 5)
    with pytest.raises(ValueError, match=r"A: expected \(K, N\) for x of \(n, K\), got \(5, 4\)"):
        multiply_tall(x, A.T)
