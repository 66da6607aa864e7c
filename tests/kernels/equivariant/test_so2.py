"""Convolutions in the frames of edges on the CPU: plain PyTorch and C.

Oracles: the formula in plain PyTorch; finite differences.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.library import opcheck
from torch.testing import assert_close

from kernels.equivariant.so2_case import IMPLEMENTATIONS, N_EXTRA, Case, use_implementation
from pipeline_kernels.compiler import LEVELS
from pipeline_kernels.equivariant.so2 import (
    Layout,
    Table,
    compute_gate_factors,
    convolution,
    from_edges,
    op,
    reference,
    so2_convolution,
    so2_linear,
    to_edges,
)
from pipeline_kernels.equivariant.wigner import compute_edge_frames
from pipeline_kernels.message import Segments

LAYOUTS = [Layout(*pair) for pair in [(0, 0), (1, 1), (2, 1), (3, 0), (3, 3), (4, 4), (6, 2)]]
EPSILON = {torch.float32: 1e-5, torch.float64: 1e-13}


@pytest.fixture(scope="module", params=IMPLEMENTATIONS)
def implementation(request):
    with use_implementation(request.param):
        yield


def close(ours, exact, dtype):
    for actual, expected in zip(ours, exact, strict=True):
        assert actual.shape == expected.shape
        assert actual.dtype == dtype
        size = max(1.0, float(expected.detach().abs().max())) if expected.numel() else 1.0
        assert_close(
            actual.detach().double(), expected.detach(), rtol=0, atol=EPSILON[dtype] * size
        )


def evaluate_in_double(case):
    """The same in float64; frames as they are."""
    doubled = [x.double() for x in case.operands]
    tables, factors, weights, bias = case.split(doubled)
    frames = case.frames.double()
    return replace(case, tables=tables, frames=frames, factors=factors, weights=weights, bias=bias)


def list_leaves(case):
    return [x.detach().clone().requires_grad_() for x in case.operands]


@pytest.mark.slow
@settings(deadline=None, max_examples=10)
@given(
    layout=st.sampled_from(LAYOUTS),
    sizes=st.tuples(st.integers(1, 9), st.integers(0, 40)),
    channels=st.sampled_from([(1, 2, 3), (16, 16, 16), (8, 33, 1), (4, 0, 5)]),
    dtype=st.sampled_from(list(EPSILON)),
    seed_and_factors=st.tuples(st.integers(0, 2**32), st.sampled_from([None, 1])),
    threads_and_turned=st.tuples(st.sampled_from([1, 2]), st.booleans()),
)
@example(LAYOUTS[4], (0, 0), (16, 16, 16), torch.float32, (0, None), (1, False))
@example(LAYOUTS[5], (9, 300), (16, 16, 16), torch.float32, (0, None), (2, False))
@example(LAYOUTS[5], (9, 300), (16, 17, 1), torch.float32, (0, None), (2, True))
def test_convolution_equals_the_formula(
    use_threads,
    implementation,
    layout,
    sizes,
    channels,
    dtype,
    seed_and_factors,
    threads_and_turned,
):
    threads, turned = threads_and_turned
    case = Case.of(layout, *sizes, channels, 5, dtype, *seed_and_factors, turned=turned)
    exact = evaluate_in_double(case)
    mine, theirs = list_leaves(case), list_leaves(exact)
    expected = exact.reference(*theirs)
    g = [torch.randn_like(x) for x in expected]
    with use_threads(threads):
        actual = case.result(*mine)
        grads = torch.autograd.grad(actual, mine, [x.to(dtype) for x in g])
    close(actual, expected, dtype)
    g = [x.to(dtype).double() for x in g]
    close(grads, torch.autograd.grad(expected, theirs, g), dtype)


@settings(deadline=None, max_examples=10)
@given(
    layout=st.sampled_from(LAYOUTS),
    sizes=st.tuples(st.integers(1, 9), st.integers(0, 40)),
    channels=st.sampled_from([0, 1, 7, 16, 33]),
    dtype=st.sampled_from(list(EPSILON)),
    place_and_scaled=st.tuples(st.integers(0, 2), st.sampled_from(["degrees", "all", "no"])),
    threads_and_turned=st.tuples(st.sampled_from([1, 2]), st.booleans()),
)
def test_rotations_equal_the_formula(
    use_threads,
    implementation,
    layout,
    sizes,
    channels,
    dtype,
    place_and_scaled,
    threads_and_turned,
):
    (place, scaled), (threads, is_turned) = place_and_scaled, threads_and_turned
    turned = (channels + 1) // 2 if is_turned else 0
    case = Case.of(layout, *sizes, (channels,) * 3, 2, dtype, n_factors=scaled == "all" or None)
    x, rows, f = case.tables[place], case.rows[place], case.factors[..., :channels]
    f = None if scaled == "no" else f
    index, n_nodes = rows and rows.index, len(x)
    wide = None if f is None else f.double()
    y = reference.to_edges(x.double(), case.frames.double(), wide, index, layout)
    back = reference.from_edges(y, case.frames.double(), wide, index, n_nodes, layout)
    y = reference.turn(y, layout, turned)
    with use_threads(threads):
        close([to_edges(x, case.frames, layout, rows, f, turned)], [y], dtype)
        close([from_edges(y.to(dtype), case.frames, layout, rows, f, turned)], [back], dtype)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", list(EPSILON))
def test_processors_with_shorter_vectors(use_level, level, dtype):
    """As many channels as fill no whole vector of any, or one and a part."""
    for channels in (3, 7, 19):
        case = Case.of(Layout(3, 3), 3, 9, (channels,) * 3, dtype=dtype)
        rows, frames = case.rows[1], case.frames.double()
        x, f = case.tables[1].double(), case.factors[..., :channels].double()
        y = reference.to_edges(x, frames, f, rows.index, case.layout)
        back = reference.from_edges(y, frames, f, rows.index, len(x), case.layout)
        y = reference.turn(y, case.layout, 2)
        how = case.layout, rows, f.to(dtype), 2
        with use_level(level):
            close([to_edges(case.tables[1], case.frames, *how)], [y], dtype)
            close([from_edges(y.to(dtype), case.frames, *how)], [back], dtype)


@pytest.mark.slow
def test_rotations_differentiate_twice(implementation):
    case = Case.of(Layout(2, 1), n_edges=5)
    layout, frames, rows = case.layout, case.frames, case.rows[0]
    x, f = case.tables[0].requires_grad_(), case.factors[..., :2].clone().requires_grad_()
    y = to_edges(x, frames, layout, rows, f).detach().requires_grad_()

    def there(x, f):
        return to_edges(x, frames, layout, rows, f)

    def back(y, f):
        return from_edges(y, frames, layout, rows, f)

    for function, operands in ((there, (x, f)), (back, (y, f))):
        assert torch.autograd.gradcheck(function, operands)
        assert torch.autograd.gradgradcheck(function, operands)
    one = f.detach()[:, :1].clone().requires_grad_()
    assert torch.autograd.gradcheck(back, (y, one))
    assert torch.autograd.gradcheck(there, (x, one))


@pytest.mark.slow
@pytest.mark.parametrize("turned", [False, True], ids=["", "turned"])
@pytest.mark.parametrize("layout", [Layout(2, 2), Layout(3, 1)], ids=str)
def test_convolution_differentiates(implementation, layout, turned):
    case = Case.of(layout, n_nodes=3, n_edges=4, channels=(1, 2, 1), turned=turned)
    assert torch.autograd.gradcheck(case.result, list_leaves(case))


@pytest.mark.slow
@pytest.mark.parametrize("n_factors", [0, 1, 3])
def test_linear_differentiates(implementation, n_factors):
    layout = Layout(2, 2)
    case = Case.of(layout, n_edges=3, channels=(1, 0, 1))
    x = torch.randn(3, layout.n_rows, 2, dtype=torch.float64)
    f = torch.randn(3, n_factors, 2, dtype=torch.float64)
    operands = [part.requires_grad_() for part in (x, f, *case.weights, case.bias)]

    def linear(x, f, *rest):
        factors = f if n_factors else None
        return so2_linear(x, rest[:-1], rest[-1], layout, factors, N_EXTRA)

    assert torch.autograd.gradcheck(linear, operands)
    scaled = reference.scale(x, f if n_factors else None, layout)
    expected = reference.so2_linear(scaled, case.weights, case.bias, layout, N_EXTRA)
    close(linear(*operands), expected, torch.float64)


@pytest.mark.parametrize("singles", [{1}, {2, 3}, set()])
def test_pairs_and_single_matrices_may_stand_side_by_side(implementation, singles):
    layout = Layout(3, 3)
    case = Case.of(layout, n_edges=11, channels=(2, 0, 3))
    weights = [W[0] if m in singles else W for m, W in enumerate(case.weights)]
    x = torch.randn(11, layout.n_rows, 5, dtype=torch.float64)
    operands = [part.clone().requires_grad_() for part in (x, *weights, case.bias)]

    def differentiate(function):
        results = function(operands[0], operands[1:-1], operands[-1], layout, n_extra=N_EXTRA)
        return results, torch.autograd.grad([y.square().sum() for y in results], operands)

    for mine, theirs in zip(*map(differentiate, (so2_linear, reference.so2_linear)), strict=True):
        close(mine, theirs, torch.float64)


def test_gates_are_silu_and_sigmoid():
    layout = Layout(2, 2)
    y, gates = torch.randn(5, 9, 2), torch.randn(5, 4)
    actual = reference.scale(y, compute_gate_factors(y, gates, layout), layout)
    assert_close(actual[:, 0], torch.nn.functional.silu(y[:, 0]))
    for row, (degree, _) in enumerate(layout.places[1:], 1):
        assert_close(actual[:, row], gates.view(5, 2, 2)[:, degree - 1].sigmoid() * y[:, row])
    assert_close(actual, reference.gate(y, gates, layout))


def test_rotations_do_not_depend_on_the_threads(use_threads, implementation):
    case = Case.of(Layout(4, 4), 50, 700, (16, 16, 16), dtype=torch.float32)
    results = []
    for threads in (1, 2, 3):
        with use_threads(threads):
            y = to_edges(case.tables[0], case.frames, case.layout, case.rows[0])
            results.append((y, from_edges(y, case.frames, case.layout, case.rows[0])))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_arguments_need_not_be_contiguous(implementation):
    case = Case.of(Layout(2, 2), channels=(8, 8, 8))
    tables = [x.permute(2, 0, 1).contiguous().permute(1, 2, 0) for x in case.tables]
    weights = [W.mT.contiguous().mT for W in case.weights]
    factors = torch.stack([case.factors, case.factors], -1)[..., 0]
    odd = replace(case, tables=tables, weights=weights, factors=factors)
    mine, theirs = odd.operands, case.operands
    for x in (*mine, *theirs):
        x.requires_grad_()
    close(odd.result(), case.reference(), torch.float64)
    grads = torch.autograd.grad([x.sum() for x in odd.result()], mine)
    expected = torch.autograd.grad([x.sum() for x in case.reference()], theirs)
    close(grads, expected, torch.float64)


def test_only_what_is_needed_gets_a_gradient(implementation):
    case = Case.of(Layout(2, 2))
    full = list_leaves(case)
    torch.autograd.backward([x.square().sum() for x in case.result(*full)])
    for k in range(len(full)):
        some = [x.detach().requires_grad_(i == k) for i, x in enumerate(full)]
        torch.autograd.backward([x.square().sum() for x in case.result(*some)])
        for i, x in enumerate(some):
            assert (x.grad is not None) == (i == k)
        assert_close(some[k].grad, full[k].grad)


def test_autocast_chooses_the_type_of_the_products(implementation):
    case = Case.of(Layout(3, 3), 5, 30, (8, 8, 8), dtype=torch.float32)
    operands = list_leaves(case)
    with torch.autocast("cpu", torch.bfloat16):
        y, extra = case.result(*operands)
        x = from_edges(y, case.frames, case.layout, case.rows[1])
    assert (y.dtype, extra.dtype, x.dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)
    exact_y, exact_extra = case.reference(*operands)
    for actual, expected in ((y, exact_y), (extra, exact_extra)):
        assert (actual - expected).abs().max() < 0.03 * expected.abs().max()
    grads = torch.autograd.grad([y.float().square().sum(), extra.float().sum()], operands)
    exact_grads = torch.autograd.grad([exact_y.square().sum(), exact_extra.sum()], operands)
    for actual, expected in zip(grads, exact_grads, strict=True):
        assert actual.dtype == torch.float32
        assert (actual - expected).abs().max() < 0.05 * expected.abs().max()


@pytest.mark.slow
def test_operators_keep_the_rules_of_torch(implementation):
    dtype = torch.float64
    case = Case.of(Layout(2, 1), dtype=dtype)
    layout, frames, code = case.layout, case.frames, [2, 1, 1]
    tables = [x.requires_grad_() for x in case.tables]
    lists = op.list_ends(case.rows[0], frames)
    f = case.factors[..., :2].clone().requires_grad_()
    y = torch.randn(7, layout.n_rows, 2, dtype=dtype).requires_grad_()
    opcheck(op._lift, (tables[0], frames, f, lists, code))
    opcheck(op._lower, (y, frames, f, lists, code))
    opcheck(op._lower, (y, frames, None, op.list_ends(None, frames), code))
    opcheck(op._factor_gradient, (y, tables[0], frames, lists, code, 3))
    edges = [x for rows in case.rows for x in op.list_ends(rows, frames)]
    own = case.bias.expand(7, -1)
    packed, bias = convolution._pack_weights(case.weights, own, 6, N_EXTRA, layout)
    weights = [W.detach().requires_grad_() for W in packed]
    factors = case.factors.requires_grad_()
    code = [2, 1, 1, 0, 2]
    arguments = (bias, N_EXTRA, tables, edges, frames, factors, weights, code)
    opcheck(convolution._convolution, arguments)
    grads = [torch.randn(7, layout.n_rows, 2).to(dtype), torch.randn_like(own)]
    plain = [x.detach() for x in tables], edges, frames, factors.detach()
    wanted = [True, False, True, True, False]
    opcheck(convolution._gradient, (grads, wanted, *plain, [W.detach() for W in weights], code))


def test_compiles_without_a_graph_break():
    case = Case.of(Layout(2, 2))
    operands = list_leaves(case)

    def layer(*operands):
        y, extra = case.result(*operands)
        return from_edges(y, case.frames, case.layout, case.rows[1]), extra

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    ours, eager = compiled(*operands), layer(*operands)
    close(ours, eager, torch.float64)
    sums = [sum(x.sum() for x in pair) for pair in (ours, eager)]
    close(*(torch.autograd.grad(total, operands) for total in sums), torch.float64)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frames": torch.zeros(7, 34)}, r"frames: expected \(n_edges, 35\) .* lmax = 2"),
        ({"tables": []}, "tables: expected at least one, got none"),
        ({"tables": [torch.zeros(4, 8, 2)] * 3}, r"tables\[0\]\..* \(4, 9, C\) .* \(4, 8"),
        ({"turned": (0, 2, 0)}, r"tables\[1\]\.turned: expected at most 1 channels, got 2"),
        ({"factors": torch.zeros(7, 2, 6).double()}, r"factors: expected \(7, 3, 6\)"),
        ({"factors": torch.zeros(7, 3, 6)}, "factors: expected .*float64 .* got .*float32"),
        ({"weights": []}, r"weights: expected shapes .* for 6 channels .* got \[\]"),
        (
            {"rows": [Segments.of(torch.zeros(2, dtype=torch.int64), 4)] * 3},
            r"\[0\]\.rows.* 7 edges",
        ),
    ],
)
def test_what_does_not_fit_is_named(changes, message):
    case = replace(Case.of(Layout(2, 2)), **changes)
    parts = zip(case.tables, case.rows, case.turned, strict=False)
    tables = [Table(*table) for table in parts]
    with pytest.raises(ValueError, match=message):
        so2_convolution(
            tables,
            case.frames,
            case.weights,
            case.bias,
            case.layout,
            case.factors,
            N_EXTRA,
        )


def test_each_edge_may_have_a_bias_of_its_own(implementation):
    """Added by torch to the scalars of each edge; its gradient is that by these."""
    case = Case.of(Layout(2, 2), n_edges=40)
    _, factors, weights, bias = case.split(case.operands)
    own = torch.randn(40, len(bias), dtype=bias.dtype, requires_grad=True)
    tables = [Table(*part) for part in zip(case.tables, case.rows, case.turned, strict=True)]

    def convolve(bias):
        return so2_convolution(tables, case.frames, weights, bias, case.layout, factors, N_EXTRA)

    (y, extra), (plain, rest) = convolve(own), convolve(torch.zeros_like(bias))
    first, last = own.split([len(bias) - N_EXTRA, N_EXTRA], 1)
    added = torch.cat([plain[:, :3] + first.unflatten(1, (3, -1)), plain[:, 3:]], 1)
    assert_close([y, extra], [added, rest + last])
    directions = torch.randn_like(y), torch.randn_like(extra)
    (by_bias,) = torch.autograd.grad([y, extra], own, directions)
    assert_close(by_bias, torch.cat([directions[0][:, :3].flatten(1), directions[1]], 1))
    with pytest.raises(ValueError, match=r"bias: expected one row, or one for each of 40 edges"):
        convolve(own[:39])


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_counts_of_a_layout(layout):
    assert layout.n_rows == len(layout.places) == len(set(layout.sources)) == layout.blocks[-1].stop


def test_wrong_layouts_are_refused():
    with pytest.raises(ValueError, match="expected 0 <= mmax <= lmax, got lmax = 2, mmax = 3"):
        Layout(2, 3)
    with pytest.raises(ValueError, match="y: expected"):
        from_edges(torch.zeros(3, 8, 1), compute_edge_frames(torch.ones(3, 3), 2), Layout(2, 2))
    with pytest.raises(ValueError, match=r"y: expected .*float32 .* got .*float64"):
        from_edges(
            torch.zeros(3, 9, 1).double(), compute_edge_frames(torch.ones(3, 3), 2), Layout(2, 2)
        )
