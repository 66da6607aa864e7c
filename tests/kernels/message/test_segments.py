"""`gather_sum` and `segment_sum` on the CPU.

Oracles: numpy's indexing and `np.add.at` for the reference, the reference (torch's own
`index_select` and `index_add`) for the kernels, finite differences for the derivatives.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.library import opcheck
from torch.testing import assert_close

from pipeline_kernels.message.segments import Segments, gather_sum, reference, segment_sum
from pipeline_kernels.message.segments.op import _gather_sum, _segment_sum

FEATURES = [(), (1,), (3,), (17,), (64,), (2, 3), (0,)]
LAYOUTS = {
    "contiguous": lambda x: x,
    "strided": lambda x: torch.stack([x, -x], dim=-1)[..., 0],
    "transposed": lambda x: x.movedim(0, -1).contiguous().movedim(-1, 0),
    "expanded": lambda x: x[:1].expand_as(x),
}


@st.composite
def messages(draw):
    """Tables, a plan for each, and values on the edges."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    features, n_edges = draw(st.sampled_from(FEATURES)), draw(st.integers(0, 50))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    layout = LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))]
    tables, plans = [], []
    for n_rows in draw(st.lists(st.integers(1, 20), min_size=1, max_size=4)):
        index = torch.randint(n_rows, (n_edges,), generator=generator)
        plans.append(Segments.of(index.sort().values if draw(st.booleans()) else index, n_rows))
        tables.append(layout(torch.randn(n_rows, *features, generator=generator, dtype=dtype)))
    return tables, plans, layout(torch.randn(n_edges, *features, generator=generator, dtype=dtype))


def make_small_case(dtype=torch.float64, *features):
    """Two tables of 4 and 3 rows and 6 edges; row 3 of the first belongs to no edge."""
    generator = torch.Generator().manual_seed(0)
    plans = [
        Segments.of(torch.tensor([2, 0, 0, 1, 2, 0]), 4),
        Segments.of(torch.tensor([0, 0, 1, 1, 2, 2]), 3),
    ]
    tables = [torch.randn(n, *features, generator=generator, dtype=dtype) for n in (4, 3)]
    return [table.requires_grad_() for table in tables], plans


@settings(deadline=None)
@given(messages())
def test_reference_equals_numpy(case):
    tables, plans, values = case
    rows = sum(t.numpy()[p.index.numpy()] for t, p in zip(tables, plans, strict=True))
    assert_close(reference.gather_sum(tables, [p.index for p in plans]), torch.as_tensor(rows))
    sums = np.zeros((plans[0].n_segments, *values.shape[1:]), values.numpy().dtype)
    np.add.at(sums, plans[0].index.numpy(), values.numpy())
    out = reference.segment_sum(values, plans[0].index, plans[0].n_segments)
    assert_close(out, torch.as_tensor(sums))


@settings(deadline=None)
@given(case=messages(), n=st.sampled_from([1, 2]))
def test_kernels_equal_the_reference(use_threads, case, n):
    tables, plans, values = case
    with use_threads(n):
        h, out = gather_sum(tables, plans), segment_sum(values, plans[0])
    assert_close(h, reference.gather_sum(tables, [p.index for p in plans]))
    assert_close(out, reference.segment_sum(values, plans[0].index, plans[0].n_segments))


def test_sum_does_not_depend_on_the_threads(use_threads):
    index = torch.randint(300, (5000,), generator=torch.Generator().manual_seed(1)) ** 2 // 300
    plan, values = Segments.of(index, 310), torch.rand(5000, 33)
    sums = []
    for n in (1, 2, 3):
        with use_threads(n):
            sums.append(segment_sum(values, plan))
    assert torch.equal(sums[0], sums[1])
    assert torch.equal(sums[0], sums[2])


@pytest.mark.parametrize("features", [(), (3,)])
def test_first_and_second_derivatives(features):
    tables, plans = make_small_case(torch.float64, *features)

    def layer(*tables):
        return segment_sum(torch.tanh(gather_sum(tables, plans)), plans[0])

    assert torch.autograd.gradcheck(layer, tables)
    assert torch.autograd.gradgradcheck(layer, tables)


def test_third_derivative_by_the_reference():
    tables, plans = make_small_case(torch.float64, 2)

    def third(gather, scatter):
        x = tables[0]
        for _ in range(3):
            y = scatter(torch.sin(gather([x, tables[1]]))).square().sum()
            (x,) = torch.autograd.grad(y, x, create_graph=True)
        return torch.autograd.grad(x.sum(), tables)

    ours = third(lambda t: gather_sum(t, plans), lambda v: segment_sum(v, plans[0]))
    index = [plan.index for plan in plans]
    torchs = third(
        lambda t: reference.gather_sum(t, index), lambda v: reference.segment_sum(v, index[0], 4)
    )
    assert_close(ours, torchs)


def test_only_the_tables_that_need_it_get_a_gradient():
    tables, plans = make_small_case(torch.float64, 2)
    gather_sum([tables[0].detach(), tables[1]], plans).sum().backward()
    assert tables[0].grad is None
    assert_close(tables[1].grad, torch.full((3, 2), 2.0, dtype=torch.float64))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_operators_keep_the_rules_of_torch(dtype):
    tables, plans = make_small_case(dtype, 5)
    lists = ([getattr(plan, name) for plan in plans] for name in ("index", "order", "offsets"))
    opcheck(_gather_sum, (tables, *lists))
    values = torch.randn(6, 5).to(dtype).requires_grad_()
    opcheck(_segment_sum, (values, plans[0].index, plans[0].order, plans[0].offsets))


def test_compiles_without_a_graph_break():
    tables, plans = make_small_case(torch.float64, 5)

    def layer(tables, plans):
        return segment_sum(torch.tanh(gather_sum(tables, plans)), plans[0])

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    ours, eager = compiled(tables, plans), layer(tables, plans)
    assert torch.equal(ours, eager)
    assert_close(torch.autograd.grad(ours.sum(), tables), torch.autograd.grad(eager.sum(), tables))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_types_are_summed_in_float32(dtype):
    ones, plan = torch.ones(5000, 2, dtype=dtype), Segments.of(torch.zeros(5000).long(), 1)
    assert segment_sum(ones, plan).tolist() == [[torch.tensor(5000).to(dtype).item()] * 2]
    assert gather_sum([ones[:1], ones[:1]], [plan, plan]).unique().tolist() == [2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, p: ([], []), "expected 1 to 4 of each, equally many, got 0 and 0"),
        (lambda t, p: (t, p[:1]), "got 2 and 1"),
        (lambda t, p: (t * 3, p * 3), "got 6 and 6"),
        (lambda t, p: ([t[0], t[0]], p), r"tables\[1\]: expected 3 rows .* \(4, 5\)"),
        (lambda t, p: ([t[0], t[1][:, :2]], p), r"tables\[1\]: expected features \(5,\)"),
        (lambda t, p: ([t[0], t[1].float()], p), r"tables\[1\]: .*float64.* got .*float32"),
        (lambda t, p: ([t[0].long(), t[1]], p), r"tables\[0\]: expected a dtype .*int64"),
        (lambda t, p: ([t[0].to("meta"), t[1]], p), r"tables\[0\]: expected device cpu .* meta"),
        (
            lambda t, p: (t, [p[0], Segments.of(torch.tensor([0]), 3)]),
            r"segments\[1\]: expected n_elements = 6 as segments\[0\], got 1",
        ),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        gather_sum(*change(*make_small_case(torch.float64, 5)))


def test_values_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"values: expected 6 rows .* got shape \(5, 2\)"):
        segment_sum(torch.zeros(5, 2), make_small_case()[1][0])
