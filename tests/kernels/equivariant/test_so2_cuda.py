"""The Triton kernels: interpreted, compiled for GPUs that need not be there, and on a GPU.

Oracle: the formula in plain PyTorch (`reference`), in float64.
"""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from pipeline_kernels.equivariant.so2 import (
    Layout,
    Table,
    compute_gate_factors,
    from_edges,
    op,
    portable,
    so2_convolution,
    so2_linear,
)
from pipeline_kernels.equivariant.so2.ends import Ends
from pipeline_kernels.equivariant.wigner import compute_edge_frames
from pipeline_kernels.message import Segments

EPSILON = {torch.float32: 1e-5, torch.float64: 1e-13}
LAYOUTS = [Layout(0, 0), Layout(2, 2), Layout(3, 1), Layout(4, 4)]


def close(actual, expected, dtype):
    assert actual.shape == expected.shape
    assert actual.dtype == dtype
    size = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    assert_close(actual.double(), expected.double(), rtol=0, atol=EPSILON[dtype] * size)


def draw_case(layout, n_nodes, n_edges, channels, dtype, seed=0, kind="random"):
    """Features of rows and of edges, frames, factors, and which row each edge takes."""
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(max(1, n_nodes), (n_edges,), generator=generator)
    index = index.sort().values if kind == "sorted" else index
    rows = None if kind == "edges" else Segments.of(index, n_nodes)
    n_rows = n_edges if rows is None else n_nodes
    shapes = [
        (n_rows, layout.dim, channels),
        (n_edges, layout.n_rows, channels + 2),  # as part of wider operands
        (n_edges, layout.lmax + 1, channels + 2),
    ]
    x, y, f = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    frames = compute_edge_frames(torch.randn(n_edges, 3, generator=generator).double(), layout.lmax)
    x, y, f, frames = (part.to(dtype) for part in (x, y, f, frames))
    return x, y[..., 1:-1], frames, f[..., 2:], rows


@pytest.mark.slow
@settings(deadline=None, max_examples=8)
@given(
    layout=st.sampled_from(LAYOUTS),
    sizes=st.tuples(st.integers(1, 3), st.integers(0, 7), st.sampled_from([0, 1, 5, 66])),
    dtype=st.sampled_from(list(EPSILON)),
    seed=st.integers(0, 2**32),
    kind=st.sampled_from(["random", "sorted", "edges"]),
    n_factors=st.sampled_from([None, 1]),
    is_turned=st.booleans(),
)
@example(Layout(4, 4), (2, 6, 16), torch.float32, 0, "random", None, True)
def test_interpreted_kernels_equal_the_formula(
    interpreted, layout, sizes, dtype, seed, kind, n_factors, is_turned
):
    turned = (sizes[2] + 1) // 2 if is_turned else 0
    x, y, frames, f, rows = draw_case(layout, *sizes, dtype, seed, kind)
    f = f[:, :n_factors]
    ends = Ends.of(op.list_ends(rows, frames), sizes[1])
    for tile in ends.cut_tiles(4, by_row=True):
        check_tile(interpreted, x, y[slice(*tile.span)], frames, f, (tile, layout, turned))


def check_tile(interpreted, x, y, frames, f, how):
    from pipeline_kernels.equivariant.so2 import cuda

    wide = [part.double() for part in (x, y, frames, f)]
    for factors, wide_factors in ((f, wide[3]), (None, None)):
        actual = fill_copy(interpreted, cuda.lift, y, x, frames, factors, *how)
        expected = fill_copy(run_here, portable.lift, wide[1], wide[0], wide[2], wide_factors, *how)
        close(actual, expected, x.dtype)
        actual = fill_copy(interpreted, cuda.lower, x, y, frames, factors, *how)
        expected = fill_copy(
            run_here, portable.lower, wide[0], wide[1], wide[2], wide_factors, *how
        )
        close(actual, expected, x.dtype)
    actual = fill_copy(interpreted, cuda.factor_gradient, f, y, x, frames, *how)
    expected = fill_copy(
        run_here, portable.factor_gradient, wide[3], wide[1], wide[0], wide[2], *how
    )
    close(actual, expected, x.dtype)


def fill_copy(run, kernel, start, *rest):
    """Return what a kernel makes of a copy, its first argument, which another process may fill."""
    result = start.clone().share_memory_()
    run(kernel, result, *rest)
    return result


def run_here(function, *args):
    function(*args)


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "dtype"), [(80, "fp64"), (90, "fp32")])
def test_kernels_compile_for_a_gpu(compiled, capability, dtype):
    from pipeline_kernels.equivariant.so2 import cuda

    p, index = f"*{dtype}", "*i64"
    constants = {"LAYOUT": Layout(2, 1), "BLOCK": 16}
    common = {"sizes": ("i32",) * 6, **dict.fromkeys([*constants, "ONE"], "constexpr")}
    common |= {"operands": (p, p, p), "edges": (index, "i32"), "begin": "i32"}
    common |= dict.fromkeys(["x", "y", "by_factors"], p)
    bare = {"operands": (p, p, "constexpr")}
    none = {"edges": ("constexpr", "i32")}
    for kernel, signature, chosen in [
        (cuda._lift, {}, {}),
        (cuda._lift, bare | none, {(1, 2): None, (2, 0): None}),
        (cuda._lower, {"lists": (index, index, index)}, {}),
        (cuda._lower, {"lists": ("constexpr", index, index)}, {(2, 0): None}),
        (
            cuda._lower,
            bare | {"lists": ("constexpr",) * 3},
            {(1, 2): None, (2, 0): None, (2, 1): None, (2, 2): None},
        ),
        (cuda._factor_gradient, {}, {"ONE": False}),
        (cuda._factor_gradient, none, {"ONE": True, (2, 0): None}),
    ]:
        made = compiled(capability, kernel, {**common, **signature}, {**constants, **chosen})
        assert made["cubin"]


def apply_node_block(x, frames, f, weights, rows, layout, turned):
    """A convolution, a gate, a linear layer and the way back."""
    bias = [W.new_zeros(W.shape[1]) for W in (weights[0], weights[len(weights) // 2])]
    first, second = weights[: len(weights) // 2], weights[len(weights) // 2 :]
    channels, n_extra = x.shape[2], x.shape[2] * layout.lmax
    table = Table(x, rows, turned)
    y, gates = so2_convolution([table], frames, first, bias[0], layout, f, n_extra)
    factors = compute_gate_factors(y, gates, layout)
    z, _ = so2_linear(y, second, bias[1], layout, factors)
    assert z.shape[2] == channels
    return from_edges(z, frames, layout, rows, f, turned)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("sizes", [(1, 1, 3), (50, 3000, 16), (90, 900, 100)])
@pytest.mark.parametrize("turned", [0, 2])
def test_gpu_equals_the_formula(gpu, layout, sizes, turned, dtype, monkeypatch):
    from pipeline_kernels.equivariant.so2 import cuda

    monkeypatch.setattr(cuda, "TILE_BYTES", 2**20)
    x, _, frames, f, rows = draw_case(layout, *sizes, dtype)
    channels = sizes[2]
    shapes = layout.list_weight_shapes(channels, channels, layout.lmax * channels)
    shapes += layout.list_weight_shapes(channels, channels)
    shapes = [shape[-2:] if turned else shape for shape in shapes]
    weights = [(torch.randn(n) / n[-2] ** 0.5).to(dtype) for n in shapes]
    exact = [part.double().requires_grad_() for part in (x, f[..., :channels], *weights)]
    monkeypatch.setattr(op, "cpu", portable)
    monkeypatch.setattr(portable, "load", lambda *_: None, raising=False)
    how = layout, turned
    wide = apply_node_block(exact[0], frames.double(), exact[1], exact[2:], rows, *how)
    ours = [part.detach().to(dtype).to(gpu).requires_grad_() for part in exact]
    out = apply_node_block(ours[0], frames.to(gpu), ours[1], ours[2:], rows.to(gpu), *how)
    g = torch.randn_like(wide)
    actual = [out, *torch.autograd.grad(out, ours, g.to(dtype).to(gpu))]
    expected = [wide, *torch.autograd.grad(wide, exact, g.to(dtype).double())]
    for one, other in zip(actual, expected, strict=True):
        close(one.detach().cpu(), other.detach(), dtype)
