"""Linear maps of equivariant features, in every order of derivatives.

Oracles: e3nn's formula as a sum over each row with the weights of its group; what rotations change;
finite differences.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import strategies as st
from torch.testing import assert_close

from kernels.calls import differentiate
from kernels.contract import Call, KernelContract
from pipeline_kernels.equivariant.linear import LinearPlan, equivariant_linear, reference
from pipeline_kernels.equivariant.wigner import compute_edge_frames, rotate


def apply(x, bias, *rest):
    *weights, plan, factors, offsets = rest
    return equivariant_linear(x, weights, plan, factors, offsets, bias)


def apply_plainly(x, bias, *rest):
    """Calculate as on devices other than CPUs."""
    *weights, plan, factors, offsets = rest
    return reference.linear(x, weights, plan, factors, offsets, bias)


def sum_rows(x, bias, *rest):
    """The formula of the package, row by row; the bias is added to the first component."""
    *weights, plan, factors, offsets = rest
    sizes = torch.tensor([len(x)]) if offsets is None else offsets.diff()
    group = torch.repeat_interleave(sizes)
    by_degree, row = [], 0
    for degree, (W, count) in enumerate(zip(weights, plan.counts, strict=True)):
        size = 2 * degree + 1
        paths = x[:, row : row + count * size].unflatten(1, (count, size))
        own = W.view(-1, count, *x.shape[2:], W.shape[-1])[group] * factors[degree]
        by_degree.append(torch.einsum("npmc,npcd->nmd", paths, own))
        row += count * size
    return torch.cat([by_degree[0] + bias, *by_degree[1:]], dim=1)


class TestLinear(KernelContract):
    folder = "equivariant/linear"
    tolerances = {torch.float32: 1e-5, torch.float64: 1e-13}
    options = {
        "sizes": [[9, 0, 40], 70],  # a number: all rows have the same weights
        "counts": [[2, 1, 1], [1]],
        "channels": [(5, 37), (16, 8)],
        "unused": [1, 0],
    }
    few = {"sizes": [2, 1], "counts": [1, 2], "channels": (2, 3)}
    many = {"sizes": [150, 7, 90], "counts": [1, 2], "channels": (64, 64)}
    empty = {"sizes": [0], "counts": [1, 1], "channels": (5, 3)}
    random = {
        "sizes": st.integers(0, 40) | st.lists(st.integers(0, 20), min_size=1, max_size=4),
        "counts": st.lists(st.integers(1, 3), min_size=1, max_size=4),
        "channels": st.tuples(st.integers(1, 40), st.integers(1, 40)),
    }
    mixed = 0.02
    refused = [
        (0, lambda x: x[:, :4], r"x: expected \(n, 11, C\) of .*, got \(49, 4, 5\)"),
        (1, lambda b: b[:4], r"bias: expected \(37,\) of torch.float64 on cpu, got \(4,\)"),
        (3, lambda W: W[:, :3], r"weights\[1\]: expected \(3, 5, 37\)"),
        (6, lambda a: a[:2], r"one for each of 3 degrees, got 3 and 2"),
    ]

    def draw(self, generator, sizes, counts, channels, unused):
        plan = LinearPlan(tuple(counts), LinearPlan.of(counts).dim_in + unused)
        factors = [0.5 + degree for degree in range(len(counts))]
        is_grouped, (C, D) = isinstance(sizes, list), channels
        groups, sizes = (len(sizes),) if is_grouped else (), sizes if is_grouped else [sizes]
        offsets = torch.tensor([0, *sizes]).cumsum(0) if is_grouped else None
        shapes = [(sum(sizes), plan.dim_in, C), (D,), *((*groups, n * C, D) for n in counts)]
        tensors = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
        return Call(apply, sum_rows, tensors, [plan, factors, offsets])


@pytest.mark.parametrize("sizes", [[3, 1, 6], 10])
@pytest.mark.parametrize("way", ["_multiply_pieces", "_multiply_padded"])
def test_plain_torch_is_the_formula(way, sizes, monkeypatch):
    monkeypatch.setattr(reference, "_multiply_pieces", getattr(reference, way))
    call = TestLinear().make(sizes=sizes)
    ours = differentiate(replace(call, function=apply_plainly), 2, torch.float64)
    assert_close(ours, differentiate(call.exact, 2, torch.float64))


def test_rotations_before_or_after_are_the_same():
    call = TestLinear().make(sizes=20, counts=[1] * 5, unused=0)
    (x, bias, *weights), constants = call.tensors, call.constants
    frames = compute_edge_frames(torch.randn(20, 3, dtype=torch.float64), 4)
    before = apply(rotate(x, frames), bias, *weights, *constants)
    assert_close(before, rotate(apply(*call.tensors, *constants), frames))


def test_a_plan_has_no_more_than_comes_in():
    with pytest.raises(ValueError, match=r"at most 4 components as they come in, got \(2, 1\)"):
        LinearPlan((2, 1), 4)
