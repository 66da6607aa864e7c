"""Convolutions in the frames of edges, and their parts: rotations and linear maps.

Oracles: the formula in plain PyTorch; finite differences.
"""

import pytest
import torch
from hypothesis import strategies as st
from torch.testing import assert_close

from kernels.contract import Call, KernelContract
from kernels.equivariant.so2_case import (
    EDGES,
    N_EXTRA,
    RECEIVERS,
    SENDERS,
    convolve,
    draw_convolution,
    draw_normal,
    draw_rows,
    draw_weights,
    mix_orders,
    scale,
)
from pipeline_kernels.equivariant.so2 import (
    Layout,
    compute_gate_factors,
    convolution,
    cpu,
    from_edges,
    op,
    passes,
    reference,
    so2_convolution,
    so2_linear,
)
from pipeline_kernels.equivariant.wigner import compute_edge_frames
from pipeline_kernels.message import Segments

LAYOUTS = [Layout(3, 3), Layout(4, 4), Layout(6, 2), Layout(0, 0)]


class InFrames(KernelContract):
    """Shared contract of the operators: tiles of few edges, and kernels chosen by the device."""

    tolerances = {torch.float32: 1e-5, torch.float64: 1e-13}
    empty = {"n_edges": 0}
    mixed = 0.05

    @pytest.fixture(autouse=True)
    def cut_into_tiles(self, monkeypatch):
        monkeypatch.setattr(cpu, "TILE_BYTES", 2**14)
        monkeypatch.setattr(reference, "TILE_BYTES", 2**14)
        monkeypatch.setattr(passes, "PASS_BYTES", 2**19)

    def prepare_interpreter(self, patch):
        from pipeline_kernels.equivariant.so2 import cuda

        patch.setattr(cuda, "TILE_BYTES", 2**12)
        for module in (op, convolution):
            patch.setattr(module, "choose_kernels", lambda *_: cuda)


class TestConvolution(InFrames):
    folder = "equivariant/so2"
    options = {
        "layout": LAYOUTS,
        "channels": [(3, 7, 9), (16, 16, 16), (8, 33, 1), (4, 0, 5)],
        "turned": [False, True],
        "n_factors": [None, 1],
    }
    few = {"layout": Layout(2, 2), "n_nodes": 3, "n_edges": 4, "channels": (1, 2, 1)}
    many = {"n_nodes": 30, "n_edges": 2000, "channels": (8, 4, 8), "channels_out": 8}
    random = {"n_nodes": st.integers(1, 9), "n_edges": st.integers(0, 40)}
    lanes = ({}, {"channels": (19, 19, 19)})
    interpreted = [
        {"layout": Layout(2, 1), "n_nodes": 2, "n_edges": 3, "channels": (2, 1, 3)},
        {"layout": Layout(4, 4), "n_nodes": 2, "n_edges": 6, "channels": (1, 16, 2)},
        {"layout": Layout(2, 2), "n_edges": 5, "channels": (5, 66, 0), "turned": True},
    ]
    refused = [
        (0, lambda x: x[:, :8], r"tables\[0\]\..* \(4, 16, C\) .* \(4, 8"),
        (3, lambda f: f[:, :2], r"factors: expected \(7, 4, 19\)"),
        (3, torch.Tensor.float, "factors: expected .*float64 .* got .*float32"),
        (5, lambda W: W[:, 1:], r"weights: expected shapes .* for 19 channels .* got \["),
        (8, lambda b: b.expand(6, -1), "bias: expected one row, or one for each of 7 edges"),
        (9, lambda D: D[:, 1:], r"frames: expected \(n_edges, 84\)"),
        (10, lambda _: [Segments.of(torch.zeros(2).long(), 4)] * 3, r"\[0\]\.rows.* 7 elements"),
        (12, lambda _: (0, 8, 0), r"tables\[1\]\.turned: expected at most 7 channels, got 8"),
    ]
    without = {
        "second derivative": "forces of its model are no derivatives",
        "test_kernels_compile_for_a_gpu": "its kernels are those of the rotations",
    }
    draw = staticmethod(draw_convolution)


class TestRotations(InFrames):
    folder = "equivariant/so2"
    options = {
        "layout": LAYOUTS,
        "channels": [5, 16],
        "place": [SENDERS, RECEIVERS, EDGES],
        "scaled": ["by degree", "all", "no"],
        "turned": [2, 0],
    }
    few = {"layout": Layout(2, 1), "n_edges": 5, "channels": 2}
    many = {"layout": Layout(4, 4), "n_nodes": 50, "n_edges": 700, "channels": 16}
    random = {"n_nodes": st.integers(1, 9), "n_edges": st.integers(0, 40)}
    lanes = ({}, {"channels": 19})
    interpreted = [
        {"layout": Layout(1, 1), "n_nodes": 2, "n_edges": 3},
        {"layout": Layout(3, 1), "channels": 66, "place": EDGES, "scaled": "all", "turned": 0},
        {"layout": Layout(4, 4), "place": RECEIVERS, "scaled": "no"},
    ]
    compiled = [{"layout": Layout(2, 1), "place": RECEIVERS}, *interpreted[1:]]
    refused = [(0, lambda y: y[:, :3], "y: expected"), (1, lambda f: f[1:], "factors: expected")]

    def draw(self, generator, layout, channels, *, place, scaled, turned, n_nodes=4, n_edges=9):
        rows, _ = draw_rows(generator, n_nodes, n_edges)
        y = draw_normal(generator, n_edges, layout.n_rows, channels)
        n_factors = {"by degree": layout.lmax + 1, "all": 1, "no": 0}[scaled]
        factors = [draw_normal(generator, n_edges, n_factors, channels)] if n_factors else []
        frames = compute_edge_frames(draw_normal(generator, n_edges, 3), layout.lmax)
        constants = [frames, layout, rows[place], turned]
        return Call(lower, lower_plainly, [y, *factors], constants)


def lower(y, *rest):
    *factors, frames, layout, rows, turned = rest
    return from_edges(y, frames, layout, rows, *(factors or [None]), turned)


def lower_plainly(y, *rest):
    *factors, frames, layout, rows, turned = rest
    y = reference.turn(y, layout, turned, back=True)
    ends = (None, len(y)) if rows is None else (rows.index, rows.n_segments)
    return reference.from_edges(y, frames, *(factors or [None]), *ends, layout)


class TestLinear(InFrames):
    folder = "equivariant/so2"
    options = {
        "layout": LAYOUTS,
        "channels": [5, 16],
        "n_factors": [None, 1, 0],
        "singles": [(), (1,), (2, 3)],
    }
    few = {"layout": Layout(2, 2), "n_edges": 3, "channels": 2}
    many, random = {"n_edges": 2000, "channels": 16}, {"n_edges": st.integers(0, 40)}
    refused = [
        (0, lambda x: x[:, 1:], "x: expected"),
        (1, lambda f: f[:, :2], "factors: expected"),
    ]
    without = {
        "second derivative": "forces of its model are no derivatives",
        "test_interpreted_kernels": "matrix products calculate, on GPUs those of torch",
    }

    def draw(self, generator, layout, channels, n_factors, singles, n_edges=11):
        n_factors = layout.lmax + 1 if n_factors is None else n_factors
        x = draw_normal(generator, n_edges, layout.n_rows, channels)
        factors = [draw_normal(generator, n_edges, n_factors, channels)] if n_factors else []
        tensors = [x, *factors, *draw_weights(generator, layout, channels, 5, singles)]
        return Call(map_linearly, map_plainly, tensors, [layout, bool(factors)])


def map_linearly(x, *rest):
    *rest, layout, is_scaled = rest
    factors = rest.pop(0) if is_scaled else None
    return so2_linear(x, rest[:-1], rest[-1], layout, factors, N_EXTRA)


def map_plainly(x, *rest):
    *rest, layout, is_scaled = rest
    x = scale(x, rest.pop(0), layout) if is_scaled else x
    return mix_orders(x, rest[:-1], rest[-1], layout, N_EXTRA)


def test_each_edge_may_have_a_bias_of_its_own(implementation):
    """Added by torch to the scalars of each edge; its gradient is that by these."""
    call = TestConvolution().make(layout=Layout(2, 2), n_edges=40)
    (*rest, bias), constants = call.tensors, call.constants
    own = torch.randn(40, len(bias), dtype=bias.dtype, requires_grad=True)
    y, extra = convolve(*rest, own, *constants)
    plain, more = convolve(*rest, torch.zeros_like(bias), *constants)
    first, last = own.split([len(bias) - N_EXTRA, N_EXTRA], 1)
    added = torch.cat([plain[:, :3] + first.unflatten(1, (3, -1)), plain[:, 3:]], 1)
    assert_close([y, extra], [added, more + last])
    directions = torch.randn_like(y), torch.randn_like(extra)
    (by_bias,) = torch.autograd.grad([y, extra], own, directions)
    assert_close(by_bias, torch.cat([directions[0][:, :3].flatten(1), directions[1]], 1))


def test_gates_are_silu_and_sigmoid():
    layout = Layout(2, 2)
    y, gates = torch.randn(5, 9, 2), torch.randn(5, 4)
    actual = scale(y, compute_gate_factors(y, gates, layout), layout)
    assert_close(actual[:, 0], torch.nn.functional.silu(y[:, 0]))
    for row, (degree, _) in enumerate(layout.places[1:], 1):
        assert_close(actual[:, row], gates.view(5, 2, 2)[:, degree - 1].sigmoid() * y[:, row])


def test_autocast_chooses_the_type_of_the_products(implementation):
    call = TestConvolution().make(torch.float32)
    frames, rows, layout, _ = call.constants
    with torch.autocast("cpu", torch.bfloat16):
        y, extra = convolve(*call.tensors, *call.constants)
        x = from_edges(y, frames, layout, rows[RECEIVERS])
    assert (y.dtype, extra.dtype, x.dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)


def test_narrow_types_are_rotated_back_in_those_of_the_frames():
    call = TestRotations().make(torch.float32)
    y, f = (x.bfloat16() for x in call.tensors)
    ours = call.function(y, f, *call.constants)
    assert torch.equal(ours, call.function(y.float(), f.float(), *call.constants))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_counts_of_a_layout(layout):
    assert layout.n_rows == len(layout.places) == len(set(layout.sources)) == layout.blocks[-1].stop


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="expected 0 <= mmax <= lmax, got lmax = 2, mmax = 3"):
        Layout(2, 3)
    frames = compute_edge_frames(torch.ones(3, 3), 2)
    for y in (torch.zeros(3, 8, 1), torch.zeros(3, 9, 1).double()):
        with pytest.raises(ValueError, match=r"y: expected .*float32 .* got"):
            from_edges(y, frames, Layout(2, 2))
    with pytest.raises(ValueError, match="tables: expected at least one, got none"):
        so2_convolution([], frames, [], torch.zeros(3), Layout(2, 2))
