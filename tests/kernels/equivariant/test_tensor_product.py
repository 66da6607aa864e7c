"""The channelwise tensor product on the CPU: plain PyTorch and C.

Oracles: e3nn's `TensorProduct` with its spherical harmonics and Wigner matrices, followed by
`index_add`; rotation and inversion; finite differences; the formula in plain PyTorch.
"""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.library import opcheck
from torch.testing import assert_close

from pipeline_kernels.compiler import LEVELS
from pipeline_kernels.equivariant.tensor_product import (
    ProductPlan,
    cpu,
    reference,
    tensor_product,
)
from pipeline_kernels.equivariant.tensor_product.op import _gradient, _product
from pipeline_kernels.message import Segments

o3 = pytest.importorskip("e3nn.o3")

PLANS = {
    "first layer": ProductPlan.of("0e", 3, "0e + 1o + 2e + 3o"),
    "second layer": ProductPlan.of("0e + 1o", 3, "0e + 1o + 2e + 3o"),
    "last layer": ProductPlan.of("0e + 1o + 2e", 2, "0e"),
    "pseudovectors": ProductPlan.of("1o + 0o + 1e", 2, "0e + 0o + 1e + 1o + 2o"),
    "twice the same": ProductPlan.of("1o + 1o", 1, "1e + 0e"),
    "high degrees": ProductPlan.of("4e + 0o", 4, "3e + 4o"),
}
EPSILON = {torch.float32: 2e-6, torch.float64: 4e-15}


@dataclass
class Case:
    """Features, harmonics, weights, a cotangent, and the graph."""

    plan: ProductPlan
    g: Tensor
    h: Tensor
    Y: Tensor
    w: Tensor
    senders: Segments
    receivers: Segments

    @classmethod
    def of(cls, plan, n_nodes=4, n_edges=7, channels=3, dtype=torch.float64, seed=0, ordered=False):
        generator = torch.Generator().manual_seed(seed)
        ends = torch.randint(max(1, n_nodes), (2, n_edges), generator=generator)
        senders, receivers = ends[0], ends[1].sort().values if ordered else ends[1]

        def normal(*shape):
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

        return cls(
            plan,
            normal(n_nodes + 1, plan.dim_out, channels),
            normal(n_nodes, plan.dim_in, channels),
            normal(n_edges, plan.dim_sh),
            normal(n_edges, plan.n_paths, channels),
            Segments.of(senders, n_nodes),
            Segments.of(receivers, n_nodes + 1),  # the last node receives nothing
        )

    @property
    def ends(self):
        return self.senders.index, self.receivers.index

    @property
    def edges(self):
        both = (self.senders, self.receivers)
        return [x for part in both for x in (part.index, part.order, part.offsets)]

    @property
    def operands(self):
        return [self.g, self.h, self.Y, self.w]

    def result(self, *operands):
        operands = operands or self.operands[1:]
        return tensor_product(*operands, self.senders, self.receivers, self.plan)

    def reference(self, h, Y, w):
        return reference.product(h, Y, w, self.ends, self.receivers.n_segments, self.plan)

    def gradient(self, wanted=(True, True, True)):
        return _gradient(self.operands, self.edges, self.plan.encode(), list(wanted))


@pytest.fixture(scope="module", params=["C", "reference"])
def implementation(request, use_implementation):
    """Everything in the test is calculated by C, then as without a compiler."""
    with use_implementation(request.param):
        cpu._load.cache_clear()
        yield
    cpu._load.cache_clear()


def make_irreps(parts, channels):
    return o3.Irreps([(channels, (irrep.l, irrep.parity)) for irrep in parts])


def list_harmonics_of(plan):
    return o3.Irreps.spherical_harmonics(plan.lmax)


def to_e3nn(x, parts):
    """Turn channels-last features `(n, dim, C)` into e3nn's `(n, C * dim)`."""
    blocks = x.split([part.dim for part in parts], dim=1)
    return torch.cat([block.transpose(1, 2).flatten(1) for block in blocks], dim=1)


def list_instructions(plan, channels):
    """Paths found, sorted and numbered by e3nn, as in MACE."""
    inputs, targets = make_irreps(plan.irreps_in, channels), make_irreps(plan.irreps_target, 1)
    actual = [
        (i, j, (channels, result))
        for i, (_, one) in enumerate(inputs)
        for j, (_, two) in enumerate(list_harmonics_of(plan))
        for result in one * two
        if result in targets
    ]
    sorted_irreps, place, _ = o3.Irreps([result for *_, result in actual]).sort()
    numbered = [(i, j, place[k], "uvu", True) for k, (i, j, _) in enumerate(actual)]
    return sorted_irreps, sorted(numbered, key=lambda instruction: instruction[2])


@pytest.fixture(params=PLANS.values(), ids=PLANS)
def plan(request):
    return request.param


def test_paths_are_those_of_mace(plan):
    results, instructions = list_instructions(plan, 1)
    assert [(path.source, path.degrees[1]) for path in plan.paths] == [i[:2] for i in instructions]
    assert [str(irrep) for irrep in plan.irreps_out] == [str(irrep) for _, irrep in results]
    assert plan.dim_out == results.dim
    assert ProductPlan.decode(plan.encode()) == plan


def test_few_coefficients_are_not_zero():
    """Fewer than 20 % typically (Firoz et al., arXiv:2504.10700, section 4.1.1)."""
    plan = PLANS["first layer"]
    assert plan.n_paths == 4
    assert len(plan.terms[1]) / sum(math.prod(path.dims) for path in plan.paths) < 0.2


def test_equals_e3nn(plan):
    channels = 3
    case = Case.of(plan, channels=channels)
    results, instructions = list_instructions(plan, channels)
    inputs = make_irreps(plan.irreps_in, channels)
    product = o3.TensorProduct(
        inputs, list_harmonics_of(plan), results, instructions, shared_weights=False
    ).double()
    senders, receivers = case.ends
    messages = product(to_e3nn(case.h, plan.irreps_in)[senders], case.Y, case.w.flatten(1))
    out = messages.new_zeros(5, results.dim).index_add(0, receivers, messages)
    assert_close(to_e3nn(case.reference(*case.operands[1:]), plan.irreps_out), out)
    assert_close(to_e3nn(case.result(), plan.irreps_out), out)


def check(case):
    """Compare with the same in plain PyTorch and float64, by what roundings add up to.

    Those are in proportion to the sum of the magnitudes of all terms.
    """
    exact = replace(case, **{name: getattr(case, name).double() for name in "ghYw"})
    ours = [case.result(), *case.gradient()]
    theirs = [exact.reference(*exact.operands[1:])]
    theirs += reference.gradient(*exact.operands, case.ends, case.plan)
    sizes = [bound_magnitude(exact, i) for i in range(4)]
    for actual, expected, size in zip(ours, theirs, sizes, strict=True):
        assert actual.shape == expected.shape
        assert actual.dtype == case.h.dtype
        assert bool(((actual - expected).abs() <= EPSILON[case.h.dtype] * (1e-30 + size)).all())


def bound_magnitude(case, i):
    """Return a bound of the sum of the magnitudes of what is added up in a derivative of S."""
    g, h, Y, w = (x.abs() for x in case.operands)
    places, values = (torch.as_tensor(x) for x in case.plan.terms)
    p, m1, m2, m3 = places.T
    values = values.abs()[:, None]
    h, Y, w = h[case.senders.index][:, m1], Y[:, m2, None], w[:, p]
    g = g[case.receivers.index][:, m3]
    ends = case.ends[1], case.ends[0]
    factor = [h * Y * w, Y * w * g, h * w * g, h * Y * g][i] * values
    like, row = case.operands[i], [m3, m1, m2, p][i]
    summed = factor.sum(2) if i == 2 else factor
    by_edge = summed.new_zeros(len(Y), *like.shape[1:]).index_add(1, row, summed)
    return by_edge if i > 1 else torch.zeros_like(like).index_add(0, ends[i], by_edge)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(
    name=st.sampled_from(sorted(PLANS)),
    sizes=st.tuples(st.integers(1, 12), st.integers(0, 30), st.sampled_from([0, 1, 3, 8, 16, 33])),
    dtype=st.sampled_from(list(EPSILON)),
    seed=st.integers(0, 2**32),
    ordered=st.booleans(),
    threads=st.sampled_from([1, 2]),
)
@example("second layer", (0, 0, 16), torch.float32, 0, True, 1)
@example("second layer", (5, 0, 16), torch.float32, 0, True, 2)
@example("second layer", (3, 20, 128), torch.float32, 0, True, 2)
def test_kernels_equal_the_formula(
    use_threads, implementation, name, sizes, dtype, seed, ordered, threads
):
    with use_threads(threads):
        check(Case.of(PLANS[name], *sizes, dtype, seed, ordered))


def test_arguments_need_not_be_contiguous(implementation):
    case = Case.of(PLANS["second layer"], channels=16)
    h = case.h.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    w = torch.stack([case.w, -case.w], -1)[..., 0]
    Y = torch.ones(1, 1, dtype=torch.float64).expand_as(case.Y)
    check(replace(case, h=h, w=w, Y=Y, g=case.g[:1].expand_as(case.g)))


@pytest.mark.parametrize("dtype", EPSILON)
def test_does_not_depend_on_the_threads(use_threads, use_implementation, dtype):
    case = Case.of(PLANS["second layer"], 150, 700, 16, dtype)
    results = []
    for threads in (1, 2, 3):
        with use_implementation("C"), use_threads(threads):
            results.append([case.result(), *case.gradient()])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["second layer", "pseudovectors"])
def test_first_and_second_derivatives(implementation, name):
    case = Case.of(PLANS[name], n_nodes=2, n_edges=2, channels=1)
    operands = [x.requires_grad_() for x in case.operands[1:]]
    assert torch.autograd.gradcheck(case.result, operands)
    assert torch.autograd.gradgradcheck(case.result, operands)


def test_third_derivative_by_the_formula(implementation):
    case = Case.of(PLANS["second layer"])
    operands = [(0.3 * x).requires_grad_() for x in case.operands[1:]]

    def third(product):
        x = operands
        for _ in range(3):
            y = torch.sin(product(*x)).sum()
            x = torch.autograd.grad(y, x, create_graph=True)
        return torch.autograd.grad(sum(part.square().sum() for part in x), operands)

    for ours, theirs in zip(third(case.result), third(case.reference), strict=True):
        assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("wanted", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1), (1, 0, 1)])
def test_only_what_is_needed_gets_a_gradient(implementation, wanted):
    case = Case.of(PLANS["second layer"], channels=16)
    for want, x in zip(wanted, case.operands[1:], strict=True):
        x.requires_grad_(bool(want))
    case.result().backward(case.g[:, :, :])
    full = case.gradient()
    part = case.gradient([bool(want) for want in wanted])
    for want, x, some, whole in zip(wanted, case.operands[1:], part, full, strict=True):
        if want:
            assert_close(x.grad, whole)
            assert_close(some, whole)
        else:
            assert x.grad is None
            assert some.numel() == 0


@pytest.mark.parametrize("sign", [1, -1], ids=["rotation", "with inversion"])
def test_turns_with_the_structure(implementation, double_precision, plan, sign):
    torch.manual_seed(0)  # e3nn loses digits of some rotations
    turn = o3.rand_matrix()
    case = Case.of(plan, n_nodes=8, n_edges=30, channels=16)
    arrows = torch.randn(30, 3)
    turned = sign * arrows @ turn.T

    def represented(parts):
        blocks = [o3.Irrep(str(part)).D_from_matrix(sign * turn) for part in parts]
        return torch.block_diag(*blocks)

    def result(h, arrows):
        Y = o3.spherical_harmonics(
            list(range(plan.lmax + 1)), arrows, normalize=True, normalization="component"
        )
        return case.result(h, Y, case.w)

    ours = result(torch.einsum("ij,njc->nic", represented(plan.irreps_in), case.h), turned)
    expected = torch.einsum("ij,njc->nic", represented(plan.irreps_out), result(case.h, arrows))
    assert_close(ours, expected, rtol=0, atol=1e-9)
    assert expected.abs().max() > 0.1


def test_a_node_without_edges_gets_zero(implementation):
    case = Case.of(PLANS["second layer"], channels=16)
    assert not case.result()[-1].any()


def test_infinity_stays_where_it_belongs(implementation):
    case = Case.of(PLANS["first layer"], n_nodes=5, n_edges=20, channels=4)
    case.w[3, :, 2] = torch.inf
    broken = case.result().isfinite().logical_not().nonzero()
    assert broken[:, [0, 2]].unique(dim=0).tolist() == [[int(case.receivers.index[3]), 2]]


@pytest.mark.slow
@pytest.mark.parametrize("channels", [5, 16])
def test_operators_keep_the_rules_of_torch(implementation, channels):
    case = Case.of(PLANS["second layer"], channels=channels)
    operands = [x.requires_grad_() for x in case.operands]
    code = case.plan.encode()
    opcheck(_product, (*operands[1:], case.edges, code))
    for wanted in ([True, True, True], [False, True, False]):
        opcheck(_gradient, (operands, case.edges, code, wanted))


def test_compiles_without_a_graph_break():
    case = Case.of(PLANS["second layer"])
    operands = [x.requires_grad_() for x in case.operands[1:]]
    compiled = torch.compile(case.result, fullgraph=True, backend="aot_eager")
    ours, eager = compiled(*operands), case.result(*operands)
    assert torch.equal(ours, eager)
    assert_close(
        torch.autograd.grad(ours.sum(), operands), torch.autograd.grad(eager.sum(), operands)
    )


@pytest.mark.parametrize("plan", ["second layer", "high degrees"])
@pytest.mark.parametrize("level", LEVELS)
def test_processors_with_shorter_vectors(use_level, level, plan):
    with use_level(level):
        cpu._load.cache_clear()
        check(Case.of(PLANS[plan], 9, 40, 21, torch.float32))
    cpu._load.cache_clear()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"h": torch.zeros(4, 3, 3)}, r"h: expected \(4, 4, 3\) for the plan, got \(4, 3, 3\)"),
        ({"h": torch.zeros(())}, r"h: expected \(4, 4, 0\)"),
        ({"Y": torch.zeros(7, 9)}, r"Y: expected \(7, 16\) for the plan, got \(7, 9\)"),
        ({"w": torch.zeros(7, 10, 2)}, r"w: expected \(7, 10, 3\)"),
        ({"w": torch.zeros(7, 10, 3)}, r"w: expected one dtype .* got torch.float32"),
        ({"h": torch.zeros(4, 4, 3).half()}, r"h: expected one dtype .* got torch.float16"),
        ({"Y": torch.zeros(7, 16, device="meta").double()}, r"Y: expected one device .* meta"),
        ({"receivers": Segments.of(torch.tensor([0]), 1)}, "receivers: expected 7 edges .* got 1"),
    ],
)
def test_what_does_not_fit_is_named(changes, message):
    case = replace(Case.of(PLANS["second layer"]), **changes)
    with pytest.raises(ValueError, match=message):
        case.result()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("0e", 1, "2e"), "no product of 0e with harmonics up to degree 1 gives 2e"),
        (("0e", -1, "0e"), "lmax: expected at least 0, got -1"),
        (("0e + 1", 1, "0e"), "as in 0e or 1o, got ' 1'"),
    ],
)
def test_plans_that_lead_nowhere_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ProductPlan.of(*arguments)
