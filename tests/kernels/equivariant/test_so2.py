"""Convolutions in the frames of edges on the CPU: plain PyTorch, C and numba.

Oracles: e3nn's `FullyConnectedTensorProduct` with spherical harmonics of the edges, and its Wigner
matrices; rotation; finite differences; the formula in plain PyTorch.
"""

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.library import opcheck
from torch.testing import assert_close

from pipeline_kernels import native
from pipeline_kernels.equivariant.so2 import (
    Layout,
    convolution,
    cpu,
    from_edges,
    gate_factors,
    op,
    portable,
    reference,
    so2_convolution,
    so2_linear,
    to_edges,
)
from pipeline_kernels.equivariant.wigner import edge_frames
from pipeline_kernels.message import Segments

o3 = pytest.importorskip("e3nn.o3")

LIBRARY = cpu._library
LAYOUTS = [Layout(*pair) for pair in [(0, 0), (1, 1), (2, 1), (3, 0), (3, 3), (4, 4), (6, 2)]]
EPSILON = {torch.float32: 1e-5, torch.float64: 1e-13}
N_EXTRA = 3


@dataclass
class Case:
    """Features of senders, receivers and edges; factors, weights, bias; the graph."""

    layout: Layout
    tables: list[Tensor]
    rows: list[Segments | None]
    vectors: Tensor
    frames: Tensor
    factors: Tensor | None
    weights: list[Tensor]
    bias: Tensor

    @classmethod
    def of(
        cls,
        layout,
        n_nodes=4,
        n_edges=7,
        channels=(2, 1, 3),
        channels_out=2,
        dtype=torch.float64,
        seed=0,
        n_factors=None,
    ):
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape):
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

        ends = torch.randint(max(1, n_nodes), (2, n_edges), generator=generator)
        rows = [Segments.of(ends[0], n_nodes), Segments.of(ends[1].sort().values, n_nodes), None]
        counts = [n_nodes, n_nodes, n_edges]
        n_factors = n_factors or layout.lmax + 1
        shapes = layout.weight_shapes(sum(channels), channels_out, N_EXTRA)
        vectors = normal(n_edges, 3)
        return cls(
            layout,
            [normal(n, layout.dim, c) for n, c in zip(counts, channels, strict=True)],
            rows,
            vectors,
            edge_frames(vectors, layout.lmax),
            normal(n_edges, n_factors, sum(channels)),
            [normal(*shape) / shape[-2] ** 0.5 for shape in shapes],
            normal((layout.lmax + 1) * channels_out + N_EXTRA),
        )

    @property
    def operands(self):
        return [*self.tables, self.factors, *self.weights, self.bias]

    def split(self, operands):
        n = len(self.tables)
        return operands[:n], operands[n], operands[n + 1 : -1], operands[-1]

    def result(self, *operands):
        tables, factors, weights, bias = self.split(operands or self.operands)
        frames, layout = self.frames, self.layout
        return so2_convolution(tables, self.rows, frames, weights, bias, layout, factors, N_EXTRA)

    def reference(self, *operands):
        tables, factors, weights, bias = self.split(operands or self.operands)
        parts = [
            reference.to_edges(x, self.frames, None, rows and rows.index, self.layout)
            for x, rows in zip(tables, self.rows, strict=True)
        ]
        x = reference.scale(torch.cat(parts, 2), factors, self.layout)
        return reference.so2_linear(x, weights, bias, self.layout, N_EXTRA)


@pytest.fixture(scope="module", params=["C", "numba", "plain"])
def implementation(request):
    """Everything in the test is calculated by C, by numba, then as on other devices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "TILE_BYTES", 2**14)
        patch.setattr(portable, "TILE_BYTES", 2**14)
        if request.param == "numba":
            patch.setattr(cpu, "_library", lambda layout, dtype: None)
        elif request.param == "plain":
            patch.setattr(op, "cpu", portable)
        elif LIBRARY(LAYOUTS[0], torch.float64) is None:
            pytest.skip(f"needs a C compiler: {native.why_not()}")
        yield request.param


@pytest.fixture
def exact():
    """Wigner matrices in float64: e3nn makes them of generators in the default type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def close(ours, exact, dtype):
    for found, expected in zip(ours, exact, strict=True):
        assert found.shape == expected.shape
        assert found.dtype == dtype
        size = max(1.0, float(expected.detach().abs().max())) if expected.numel() else 1.0
        assert_close(found.detach().double(), expected.detach(), rtol=0, atol=EPSILON[dtype] * size)


def exactly(case):
    """The same in float64; frames as they are."""
    doubled = [x.double() for x in case.operands]
    tables, factors, weights, bias = case.split(doubled)
    frames = case.frames.double()
    return replace(case, tables=tables, frames=frames, factors=factors, weights=weights, bias=bias)


def leaves(case):
    return [x.detach().clone().requires_grad_() for x in case.operands]


@settings(deadline=None, max_examples=10)
@given(
    layout=st.sampled_from(LAYOUTS),
    sizes=st.tuples(st.integers(1, 9), st.integers(0, 40)),
    channels=st.sampled_from([(1, 2, 3), (16, 16, 16), (8, 33, 1), (4, 0, 5)]),
    dtype=st.sampled_from(list(EPSILON)),
    seed_and_factors=st.tuples(st.integers(0, 2**32), st.sampled_from([None, 1])),
    threads=st.sampled_from([1, 2]),
)
@example(LAYOUTS[4], (0, 0), (16, 16, 16), torch.float32, (0, None), 1)
@example(LAYOUTS[5], (9, 300), (16, 16, 16), torch.float32, (0, None), 2)
def test_convolution_equals_the_formula(
    use_threads, implementation, layout, sizes, channels, dtype, seed_and_factors, threads
):
    case = Case.of(layout, *sizes, channels, 5, dtype, *seed_and_factors)
    exact = exactly(case)
    mine, theirs = leaves(case), leaves(exact)
    expected = exact.reference(*theirs)
    g = [torch.randn_like(x) for x in expected]
    with use_threads(threads):
        found = case.result(*mine)
        grads = torch.autograd.grad(found, mine, [x.to(dtype) for x in g])
    close(found, expected, dtype)
    g = [x.to(dtype).double() for x in g]
    close(grads, torch.autograd.grad(expected, theirs, g), dtype)


@settings(deadline=None, max_examples=10)
@given(
    layout=st.sampled_from(LAYOUTS),
    sizes=st.tuples(st.integers(1, 9), st.integers(0, 40)),
    channels=st.sampled_from([0, 1, 7, 16, 33]),
    dtype=st.sampled_from(list(EPSILON)),
    place_and_scaled=st.tuples(st.integers(0, 2), st.sampled_from(["degrees", "all", "no"])),
    threads=st.sampled_from([1, 2]),
)
def test_rotations_equal_the_formula(
    use_threads, implementation, layout, sizes, channels, dtype, place_and_scaled, threads
):
    place, scaled = place_and_scaled
    case = Case.of(layout, *sizes, (channels,) * 3, 2, dtype, n_factors=scaled == "all" or None)
    x, rows, f = case.tables[place], case.rows[place], case.factors[..., :channels]
    f = None if scaled == "no" else f
    index, n_nodes = rows and rows.index, len(x)
    wide = None if f is None else f.double()
    y = reference.to_edges(x.double(), case.frames.double(), wide, index, layout)
    back = reference.from_edges(y, case.frames.double(), wide, index, n_nodes, layout)
    with use_threads(threads):
        close([to_edges(x, case.frames, layout, rows, f)], [y], dtype)
        close([from_edges(y.to(dtype), case.frames, layout, rows, f)], [back], dtype)


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


@pytest.mark.parametrize("layout", [Layout(2, 2), Layout(3, 1)], ids=str)
def test_convolution_differentiates(implementation, layout):
    case = Case.of(layout, n_nodes=3, n_edges=4, channels=(1, 2, 1))
    assert torch.autograd.gradcheck(case.result, leaves(case))


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


def test_gates_are_silu_and_sigmoid():
    layout = Layout(2, 2)
    y, gates = torch.randn(5, 9, 2), torch.randn(5, 4)
    found = reference.scale(y, gate_factors(y, gates, layout), layout)
    assert_close(found[:, 0], torch.nn.functional.silu(y[:, 0]))
    for row, (degree, _) in enumerate(layout.places[1:], 1):
        assert_close(found[:, row], gates.view(5, 2, 2)[:, degree - 1].sigmoid() * y[:, row])
    assert_close(found, reference.gate(y, gates, layout))


def messages(case, tables, frames):
    """Two convolutions with a gate between them, rotated back and summed at receivers."""
    layout, factors, rows = case.layout, case.factors, case.rows
    channels = (len(case.bias) - N_EXTRA) // (layout.lmax + 1)
    y, extra = so2_convolution(
        tables, rows, frames, case.weights, case.bias, layout, factors, N_EXTRA
    )
    gates = extra.sum(1, keepdim=True).expand(-1, layout.lmax * channels)
    shapes = layout.weight_shapes(channels, channels)
    weights = [torch.sin(torch.arange(n.numel()).double()).view(n) for n in map(torch.Size, shapes)]
    bias = case.bias[:-N_EXTRA]
    z, _ = so2_linear(y, weights, bias, layout, gate_factors(y, gates, layout))
    return from_edges(z, frames, layout, rows[1]), extra


@pytest.mark.parametrize("layout", [Layout(2, 2), Layout(4, 4), Layout(4, 2)], ids=str)
def test_turns_with_the_structure(implementation, exact, layout):
    case = Case.of(layout, n_nodes=6, n_edges=40)
    torch.manual_seed(5)
    turn = o3.rand_matrix()  # of permuted vectors
    degrees = range(layout.lmax + 1)
    D = torch.block_diag(*(o3.Irrep(degree, 1).D_from_matrix(turn) for degree in degrees))
    permuted = case.vectors[:, [1, 2, 0]] @ turn.T
    turned_frames = edge_frames(permuted[:, [2, 0, 1]], layout.lmax)
    turned = [torch.einsum("ij,njc->nic", D, x) for x in case.tables]
    x, extra = messages(case, case.tables, case.frames)
    found, found_extra = messages(case, turned, turned_frames)
    # The arc cosines from which e3nn makes D lose digits where its angles are small.
    assert_close(found, torch.einsum("ij,njc->nic", D, x), rtol=0, atol=1e-9)
    assert_close(found_extra, extra, rtol=0, atol=1e-9)
    assert x[:, 1:].abs().max() > 0.1


@pytest.mark.parametrize("layout", [Layout(3, 3), Layout(4, 2)], ids=str)
def test_does_not_depend_on_the_angle_about_the_edge(exact, layout):
    case = Case.of(layout, n_edges=9)
    angle, zero = torch.tensor(0.7), torch.tensor(0.0)
    spins = [o3.wigner_D(degree, angle, zero, zero) for degree in range(layout.lmax + 1)]
    sizes = [(2 * degree + 1) ** 2 for degree in range(layout.lmax + 1)]
    blocks = case.frames.split(sizes, 1)
    spun = [
        (spin @ block.unflatten(1, spin.shape)).flatten(1)
        for spin, block in zip(spins, blocks, strict=True)
    ]
    x, extra = messages(case, case.tables, case.frames)
    found, found_extra = messages(case, case.tables, torch.cat(spun, 1).contiguous())
    assert_close(found, x, rtol=0, atol=1e-11)
    assert_close(found_extra, extra, rtol=0, atol=1e-11)


def test_equals_a_tensor_product_with_all_harmonics(exact):
    """Passaro and Zitnick, arXiv:2302.03655: the maps are the same where all orders are kept."""
    lmax, channels, channels_out, n = 2, 3, 2, 11
    layout = Layout(lmax, lmax)
    inputs, results = (
        o3.Irreps([(c, (degree, 1)) for degree in range(lmax + 1)])
        for c in (channels, channels_out)
    )
    degrees = list(range(2 * lmax + 1))
    product = o3.FullyConnectedTensorProduct(
        inputs, o3.Irreps([(1, (degree, 1)) for degree in degrees]), results
    )
    vectors, x = torch.randn(n, 3), torch.randn(n, layout.dim, channels)

    def e3nn(x, directions):
        parts = x.split([2 * degree + 1 for degree in range(lmax + 1)], 1)
        flat = torch.cat([part.mT.flatten(1) for part in parts], 1)
        Y = o3.spherical_harmonics(degrees, directions, True, "component")
        parts = product(flat, Y).split([part.dim for part in results], 1)
        return torch.cat([part.unflatten(1, (channels_out, -1)).mT for part in parts], 1)

    n_in = layout.dim * channels
    basis = torch.eye(n_in).view(n_in, layout.dim, channels)
    matrix = e3nn(basis, torch.tensor([[0.0, 1, 0]]).expand(n_in, 3))
    matrix = matrix.view(layout.dim, channels, layout.dim, channels_out)[layout.sources, :]
    matrix = matrix[:, :, layout.sources]
    weights = []
    for m, rows in enumerate(layout.blocks):
        k = layout.n_degrees(m)
        block = matrix[rows, :, rows]
        real, imaginary = block[:k, :, :k], block[:k, :, k:]
        pair = [real, imaginary] if m else [real]
        parts = [part.reshape(k * channels, k * channels_out) for part in pair]
        weights.append(torch.stack(parts) if m else parts[0])
    bias = torch.zeros((lmax + 1) * channels_out)
    frames = edge_frames(vectors, lmax)
    y, _ = so2_convolution([x], [None], frames, [W.detach() for W in weights], bias, layout)
    expected = e3nn(x, vectors[:, [1, 2, 0]]).detach()
    assert_close(from_edges(y, frames, layout), expected, rtol=0, atol=1e-11)
    assert weights[1][1].abs().max() > 0.01
    assert expected.abs().max() > 0.1


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
    full = leaves(case)
    torch.autograd.backward([x.square().sum() for x in case.result(*full)])
    for k in range(len(full)):
        some = [x.detach().requires_grad_(i == k) for i, x in enumerate(full)]
        torch.autograd.backward([x.square().sum() for x in case.result(*some)])
        for i, x in enumerate(some):
            assert (x.grad is not None) == (i == k)
        assert_close(some[k].grad, full[k].grad)


def test_autocast_chooses_the_type_of_the_products(implementation):
    case = Case.of(Layout(3, 3), 5, 30, (8, 8, 8), dtype=torch.float32)
    operands = leaves(case)
    with torch.autocast("cpu", torch.bfloat16):
        y, extra = case.result(*operands)
        x = from_edges(y, case.frames, case.layout, case.rows[1])
    assert (y.dtype, extra.dtype, x.dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)
    exact_y, exact_extra = case.reference(*operands)
    for found, expected in ((y, exact_y), (extra, exact_extra)):
        assert (found - expected).abs().max() < 0.03 * expected.abs().max()
    grads = torch.autograd.grad([y.float().square().sum(), extra.float().sum()], operands)
    exact_grads = torch.autograd.grad([exact_y.square().sum(), exact_extra.sum()], operands)
    for found, expected in zip(grads, exact_grads, strict=True):
        assert found.dtype == torch.float32
        assert (found - expected).abs().max() < 0.05 * expected.abs().max()


def test_operators_keep_the_rules_of_torch():
    dtype = torch.float64
    case = Case.of(Layout(2, 1), dtype=dtype)
    layout, frames, code = case.layout, case.frames, [2, 1]
    tables = [x.requires_grad_() for x in case.tables]
    lists = op.lists(case.rows[0], frames)
    f = case.factors[..., :2].clone().requires_grad_()
    y = torch.randn(7, layout.n_rows, 2, dtype=dtype).requires_grad_()
    opcheck(op._lift, (tables[0], frames, f, lists, code))
    opcheck(op._lower, (y, frames, f, lists, code))
    opcheck(op._lower, (y, frames, None, op.lists(None, frames), code))
    opcheck(op._factor_gradient, (y, tables[0], frames, lists, code, 3))
    edges = [x for rows in case.rows for x in op.lists(rows, frames)]
    packed, bias = convolution._prepared(case.weights, case.bias, 6, N_EXTRA, layout)
    weights = [W.detach().requires_grad_() for W in packed]
    factors = case.factors.requires_grad_()
    arguments = (tables, edges, frames, factors, weights, bias, N_EXTRA, code)
    opcheck(convolution._convolution, arguments)
    grads = [torch.randn(7, layout.n_rows, 2).to(dtype), torch.randn(7, N_EXTRA).to(dtype)]
    plain = [x.detach() for x in tables], edges, frames, factors.detach()
    wanted = [True, False, True, True, False]
    opcheck(convolution._gradient, (grads, *plain, [W.detach() for W in weights], code, wanted))


def test_compiles_without_a_graph_break():
    case = Case.of(Layout(2, 2))
    operands = leaves(case)

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
        ({"tables": []}, "tables: expected at least one and as many as rows, got 0 and 3"),
        ({"tables": [torch.zeros(4, 8, 2)] * 3}, r"tables\[0\]: expected \(4, 9, C\) .* \(4, 8"),
        ({"factors": torch.zeros(7, 2, 6).double()}, r"factors: expected \(7, 3, 6\)"),
        ({"factors": torch.zeros(7, 3, 6)}, "factors: expected .*float64 .* got .*float32"),
        ({"weights": []}, r"weights: expected shapes .* for 6 channels .* got \[\]"),
        ({"rows": [Segments.of(torch.zeros(2, dtype=torch.int64), 4)] * 3}, r"rows\[0\].* 7 edges"),
    ],
)
def test_what_does_not_fit_is_named(changes, message):
    case = replace(Case.of(Layout(2, 2)), **changes)
    with pytest.raises(ValueError, match=message):
        so2_convolution(
            case.tables,
            case.rows,
            case.frames,
            case.weights,
            case.bias,
            case.layout,
            case.factors,
            N_EXTRA,
        )


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_counts_of_a_layout(layout):
    assert layout.n_rows == len(layout.places) == len(set(layout.sources)) == layout.blocks[-1].stop


def test_wrong_layouts_are_refused():
    with pytest.raises(ValueError, match="expected 0 <= mmax <= lmax, got lmax = 2, mmax = 3"):
        Layout(2, 3)
    with pytest.raises(ValueError, match="y: expected"):
        from_edges(torch.zeros(3, 8, 1), edge_frames(torch.ones(3, 3), 2), Layout(2, 2))
    with pytest.raises(ValueError, match=r"y: expected .*float32 .* got .*float64"):
        from_edges(torch.zeros(3, 9, 1).double(), edge_frames(torch.ones(3, 3), 2), Layout(2, 2))
