"""The contraction of a tree on the CPU: C, and the reference where there is none.

Oracles: PyTorch's automatic differentiation of the formula in plain PyTorch (`reference.contract`),
finite differences.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.library import opcheck
from torch.testing import assert_close

from pipeline_kernels.compiler import LEVELS
from pipeline_kernels.tree import Linear, Node, TreeShape, contract, reference
from pipeline_kernels.tree.op import _contract, _gradient, _tangent

RELATIVE = {torch.float32: 1e-5, torch.float64: 1e-12}
FORK_AFTER_THREADS = """
import os, torch
from pipeline_kernels import threads
from pipeline_kernels.tree import Node, TreeShape, contract
threads.GRAIN_SIZE = 1
torch.set_num_threads(2)
shape = TreeShape((2, 2), (Node(0, 1, 1),))
features, transfers = torch.ones(4, 3000), torch.ones(4)
run = lambda: contract(features, transfers, shape).tolist() != [4.0] * 3000
run()
child = os.fork()
if child == 0:
    wrong = run()
    torch.set_num_threads(1)
    os._exit(wrong or run())
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@dataclass
class Case:
    """Positive numbers, so that no sum loses digits and each entry can be compared."""

    shape: TreeShape
    features: Tensor
    transfers: Tensor
    direction: Tensor
    weights: Tensor

    @classmethod
    def of(cls, shape: TreeShape, n: int, dtype=torch.float64, seed=0) -> "Case":
        generator = torch.Generator().manual_seed(seed)

        def random(*sizes):
            return torch.rand(*sizes, generator=generator, dtype=torch.float64).to(dtype)

        # Values of all nodes stay near one, so that float32 holds them.
        parts = [random(*sizes) * 4 / (sizes[0] * sizes[1]) for sizes in shape.tensor_shapes]
        transfers = torch.cat([part.flatten() for part in parts])
        return cls(shape, random(shape.n_features, n), transfers, random(len(transfers)), random(n))


@st.composite
def shapes(draw):
    """Any tree: pairs of what has no parent yet get one."""
    d = draw(st.integers(2, 12))
    ranks = st.integers(1, 40 if d < 4 else 14)
    open_slots, nodes = list(range(d)), []
    while len(open_slots) > 1:
        left = open_slots.pop(draw(st.integers(0, len(open_slots) - 1)))
        right = open_slots.pop(draw(st.integers(0, len(open_slots) - 1)))
        nodes.append(Node(left, right, draw(ranks) if open_slots else 1))
        open_slots.append(d + len(nodes) - 1)
    return TreeShape(tuple(draw(ranks) for _ in range(d)), tuple(nodes))


def build_balanced(leaf_ranks, rank):
    """The dimensions halved again and again, the left half not the smaller."""
    nodes = []

    def build(dims):
        if len(dims) == 1:
            return dims[0]
        half = -(-len(dims) // 2)
        left, right = build(dims[:half]), build(dims[half:])
        nodes.append(Node(left, right, rank if len(dims) < len(leaf_ranks) else 1))
        return len(leaf_ranks) + len(nodes) - 1

    build(list(range(len(leaf_ranks))))
    return TreeShape(tuple(leaf_ranks), tuple(nodes))


@pytest.fixture(scope="module", params=["C", "reference"])
def implementation(request, use_implementation):
    """Everything in the test is calculated by C, then as without a compiler."""
    with use_implementation(request.param):
        yield


def check(case: Case) -> None:
    """Compares value, gradient and tangent with automatic differentiation."""
    shape, dtype = case.shape, case.features.dtype
    inputs = [x.detach().clone().requires_grad_() for x in (case.features, case.transfers)]
    expected, inner = reference.contract(*inputs, shape)
    gradients = torch.autograd.grad(expected, inputs, case.weights)
    _, change = torch.autograd.functional.jvp(
        lambda B: reference.contract(case.features, B, shape)[0],
        case.transfers,
        case.direction,
    )
    ours = _contract(case.features, case.transfers, shape.encode())
    both = _gradient(case.features, case.transfers, ours[1], case.weights, shape.encode(), True)
    linear = Linear(case.features, case.transfers, shape)
    assert torch.equal(linear.value, ours[0])
    assert torch.equal(linear.gradient(case.weights), both[1])
    result = [*ours, *both, linear.tangent(case.direction)]
    for ours, theirs in zip(result, [expected, inner, *gradients, change], strict=True):
        assert_close(ours, theirs, rtol=RELATIVE[dtype], atol=0, check_stride=True)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(
    shape=shapes(),
    n=st.integers(0, 700),
    dtype=st.sampled_from(list(RELATIVE)),
    threads=st.sampled_from([1, 2]),
    seed=st.integers(0, 2**32),
)
def test_equals_automatic_differentiation(
    use_threads, implementation, shape, n, dtype, threads, seed
):
    with use_threads(threads):
        check(Case.of(shape, n, dtype, seed))


@pytest.mark.parametrize("dtype", RELATIVE)
@pytest.mark.parametrize("n", [1, 256, 2 * 512 + 1, 3000])
def test_whole_and_cut_blocks(use_threads, implementation, n, dtype):
    with use_threads(2):
        check(Case.of(build_balanced((3, 2, 5, 4), 10), n, dtype))


def test_every_size_of_a_tile(implementation):
    for rank in range(1, 28):
        check(Case.of(TreeShape((rank, 3, 2), (Node(0, 1, rank), Node(2, 3, 1))), 40))


@pytest.mark.parametrize("dtype", RELATIVE)
def test_does_not_depend_on_the_threads(use_threads, use_implementation, dtype):
    case = Case.of(build_balanced((4, 3, 5, 2), 6), 9001, dtype)
    results = []
    for threads in (1, 2, 3):
        with use_implementation("C"), use_threads(threads):
            root, inner = _contract(case.features, case.transfers, case.shape.encode())
            results.append((root, inner))
            results[-1] += _gradient(
                case.features, case.transfers, inner, case.weights, case.shape.encode(), True
            )
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_calls_from_many_threads_do_not_meet(use_threads, implementation):
    cases = [Case.of(build_balanced((3, 4, 5), rank), 3000, seed=rank) for rank in range(1, 9)]
    with use_threads(2), ThreadPoolExecutor(4) as pool:
        result = list(pool.map(lambda c: contract(c.features, c.transfers, c.shape), cases * 4))
    for case, value in zip(cases * 4, result, strict=True):
        assert_close(value, reference.contract(case.features, case.transfers, case.shape)[0])


def test_arguments_need_not_be_contiguous(implementation):
    case = Case.of(build_balanced((3, 4, 2), 5), 100)
    rows = case.features.T.contiguous().T
    strided = torch.stack([case.features, -case.features], dim=-1)[..., 0]
    spread = torch.stack([case.transfers, -case.transfers], dim=-1)[..., 0]
    for features, transfers in ((rows, case.transfers), (strided, spread)):
        weights = torch.ones(1, dtype=torch.float64).expand(100)
        check(Case(case.shape, features, transfers, spread, weights))


@pytest.mark.slow
def test_first_and_second_derivatives(implementation):
    case = Case.of(build_balanced((2, 3, 1, 2), 2), 3)
    inputs = [case.features.requires_grad_(), case.transfers.requires_grad_()]
    assert torch.autograd.gradcheck(lambda *x: contract(*x, case.shape), inputs)
    assert torch.autograd.gradgradcheck(lambda *x: contract(*x, case.shape), inputs)


@pytest.mark.slow
def test_operators_keep_the_rules_of_torch(implementation):
    case = Case.of(build_balanced((2, 3, 4), 3), 17, torch.float32)
    code = case.shape.encode()
    inputs = (case.features.requires_grad_(), case.transfers.requires_grad_())
    inner = _contract(*inputs, code)[1].detach()
    opcheck(_contract, (*inputs, code))
    for by_features in (True, False):
        opcheck(_gradient, (*inputs, inner, case.weights.requires_grad_(), code, by_features))
    features, transfers = (x.detach() for x in inputs)
    opcheck(_tangent, (features, transfers, inner, case.direction, code))


def test_only_what_is_needed_gets_a_gradient(implementation):
    case = Case.of(build_balanced((2, 3, 4), 3), 50)
    transfers = case.transfers.requires_grad_()
    contract(case.features, transfers, case.shape).sum().backward()
    by_features, by_transfers = _gradient(
        case.features,
        transfers.detach(),
        reference.contract(case.features, transfers.detach(), case.shape)[1],
        torch.ones(50, dtype=torch.float64),
        case.shape.encode(),
        False,
    )
    assert case.features.grad is None
    assert by_features.shape == (0,)
    assert_close(by_transfers, transfers.grad)
    (expected,) = torch.autograd.grad(
        reference.contract(case.features, transfers, case.shape)[0].sum(), transfers
    )
    assert_close(by_transfers, expected)


@pytest.mark.parametrize("level", LEVELS)
def test_processors_with_shorter_vectors(use_level, level):
    with use_level(level):
        check(Case.of(build_balanced((3, 7, 13, 4), 9), 301, torch.float32))


def test_infinity_stays_with_its_sample(implementation):
    case = Case.of(build_balanced((2, 3), 1), 20)
    case.features[0, 7] = torch.inf
    value = contract(case.features, case.transfers, case.shape)
    assert value.isfinite().logical_not().nonzero().tolist() == [[7]]


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["cc", "/no/such/compiler"])
def test_a_forked_process_can_run_kernels(monkeypatch, compiler):
    """As the workers of `torch.utils.data.DataLoader` do after the parent has used its threads."""
    monkeypatch.setenv("CC", compiler)
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK_AFTER_THREADS], check=True, timeout=60
    )
