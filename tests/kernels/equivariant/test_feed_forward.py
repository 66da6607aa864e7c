"""Feed-forward layers of equivariant features, and their norm alone.

Oracles: the formula in plain PyTorch, whose norm and gates are those of torch; finite differences;
Wigner matrices.
"""

import torch
from hypothesis import strategies as st
from torch.testing import assert_close

from kernels.contract import Call, KernelContract
from pipeline_kernels.equivariant.feed_forward import Weights, feed_forward, normalise, reference
from pipeline_kernels.equivariant.wigner import compute_edge_frames, rotate


def apply(x, *weights):
    return feed_forward(x, Weights(*weights))


def apply_plainly(x, *weights):
    return reference.feed_forward(x, Weights(*weights))


class Layer(KernelContract):
    """Features and weights; channels are (all, true scalars)."""

    tolerances = {torch.float32: 1e-5, torch.float64: 1e-13}
    options = {
        "lmax": [4, 1],
        "channels": [(16, 12), (5, 3), (16, 16)],
        "hidden": [(7, 5), (64, 64), (35, 1)],
        "n_rows": [41, 131],
    }
    few = {"n_rows": 3, "lmax": 2, "channels": (3, 2), "hidden": (4, 3)}
    many, empty = {"n_rows": 500}, {"n_rows": 0}
    untraced = ("",)  # first derivatives differentiate the reference
    random = {"lmax": st.integers(1, 5), "n_rows": st.integers(0, 40)}
    mixed = 0.05
    without = {"second derivative": "forces of its model are no derivatives"}

    def draw(self, generator, lmax, channels, hidden, n_rows):
        (C, n), (H, N) = channels, hidden
        n_gates = (lmax + 1) * H - N
        shapes = [(n_rows, (lmax + 1) ** 2, C), (n,), (n,), (lmax, C), (lmax + 1, C, H), (N,)]
        shapes += [(n, n_gates), (n_gates,), (lmax + 1, H, C), (n,)]
        draws = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
        return self.call(draws[0], *(0.5 * w for w in draws[1:]))


class TestFeedForward(Layer):
    folder = "equivariant/feed_forward"
    refused = [
        (0, lambda x: x[:, :4], "x: expected"),
        (0, torch.Tensor.half, "x: expected .* got .*float16"),
        (1, torch.Tensor.float, "gain: expected"),
        (6, lambda gates: gates[:, :-1], "gates: expected"),
    ]

    def call(self, *tensors):
        return Call(apply, apply_plainly, tensors)


class TestNorm(Layer):
    folder = "equivariant/feed_forward"
    refused = [(0, lambda x: x[:, :4], "x: expected")]

    def call(self, *tensors):
        return Call(normalise, reference.normalise, tensors[:4])


def test_rotations_before_or_after_are_the_same():
    x, *weights = TestFeedForward().make(n_rows=20).tensors
    frames = compute_edge_frames(torch.randn(20, 3, dtype=torch.float64), 4)
    assert_close(apply(rotate(x, frames), *weights), rotate(apply(x, *weights), frames))
