"""Norms and linear maps of features, which commute with rotations, and with reflections if asked.

Features are kept channels last: (n, (lmax + 1)², channels), components of degree 0, then of degree
1, and so on, each from m = -l to l. Channels of natural parity come first, see `channels`.

Weights are drawn so that a map keeps the variance of its input; biases are zero at first. What
would mix parities has no weights. Where that leaves blocks, they are joined to one matrix with
zeros between them: features then go through one product and are not copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline_egnn_esp.channels import Channels
from pipeline_kernels.equivariant.so2 import Layout

EPSILON: Final = 1e-5
"""Added to mean squares before division."""


def join_blocks(one: Tensor, other: Tensor) -> Tensor:
    """Return the matrices (..., n, m) that have two blocks on their diagonal and zeros beside."""
    upper = functional.pad(one, (0, other.shape[-1]))
    lower = functional.pad(other, (one.shape[-1], 0))
    return torch.cat([upper, lower], dim=-2)


class DegreeNorm(nn.Module):
    """Layer normalisation of true scalars; all others divided by their common root mean square.

    Each degree above 0 counts the same in the mean; each channel of each has a learned scale.

    Args:
        lmax: Highest degree.
        channels: Of every degree.
    """

    degrees: Tensor
    shares: Tensor

    def __init__(self, lmax: int, channels: Channels) -> None:
        super().__init__()
        self.channels = channels
        self.scalars = nn.LayerNorm(channels.natural, eps=EPSILON)
        self.scales = nn.Parameter(torch.ones(lmax, channels.total))
        degrees = [degree for degree in range(1, lmax + 1) for _ in range(2 * degree + 1)]
        counts = torch.tensor([2 * degree + 1 for degree in degrees], dtype=torch.float64)
        self.register_buffer("degrees", torch.tensor(degrees), persistent=False)
        self.register_buffer("shares", 1 / (lmax * counts), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (n, (lmax + 1)², channels)."""
        first, others, n = x[:, :1], x[:, 1:], self.channels.natural
        mean = others.square().mean(2) @ self.shares.to(x.dtype)  # (n,)
        factors = (mean + EPSILON).rsqrt()[:, None, None]
        parts = [self.scalars(first[..., :n]).to(x.dtype)]
        if self.channels.unnatural:
            parts = [torch.cat([*parts, first[..., n:] * factors], dim=2)]
        return torch.cat([*parts, others * (factors * self.scales[self.degrees - 1])], dim=1)


class DegreeLinear(nn.Module):
    """A linear map of the channels of each degree, with a bias of true scalars.

    Args:
        lmax: Highest degree.
        inputs: Channels that come in.
        outputs: Channels that go out.
    """

    def __init__(self, lmax: int, inputs: Channels, outputs: Channels) -> None:
        super().__init__()
        shape = lmax + 1, inputs.natural, outputs.natural
        self.weights = nn.Parameter(torch.randn(shape) / sqrt(inputs.natural))
        self.bias = nn.Parameter(torch.zeros(outputs.natural))
        self.unnatural: nn.Parameter | None = None
        if outputs.unnatural:
            shape = lmax + 1, inputs.unnatural, outputs.unnatural
            self.unnatural = nn.Parameter(torch.randn(shape) / sqrt(inputs.unnatural))

    def map_degree(self, x: Tensor, degree: int) -> Tensor:
        """Map components of all degrees (n, (lmax + 1)², inputs) to those of one degree."""
        return self.map(x[:, degree**2 : (degree + 1) ** 2], degree)

    def map(self, part: Tensor, degree: int) -> Tensor:
        """Map the components of one degree, (n, 2 l + 1, inputs)."""
        weights = self.weights[degree]
        if self.unnatural is not None:
            weights = join_blocks(weights, self.unnatural[degree])
        mapped = part @ weights
        if degree:
            return mapped
        return mapped + functional.pad(self.bias, (0, mapped.shape[-1] - len(self.bias)))

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, (lmax + 1)², inputs) to (n, (lmax + 1)², outputs)."""
        degrees = range(len(self.weights))
        return torch.cat([self.map_degree(x, degree) for degree in degrees], dim=1)


class FeedForward(nn.Module):
    """Two linear maps of each degree with a gate between.

    The gate is SiLU of true scalars, and for all others sigmoids of such.

    Args:
        lmax: Highest degree.
        channels: In and out.
        hidden: Channels in between.
    """

    def __init__(self, lmax: int, channels: Channels, hidden: Channels) -> None:
        super().__init__()
        self.channels, self.hidden = channels, hidden
        self.up = DegreeLinear(lmax, channels, hidden)
        self.gates = nn.Linear(channels.natural, count_gates(lmax, hidden))
        nn.init.zeros_(self.gates.bias)
        self.down = DegreeLinear(lmax, hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, (lmax + 1)², channels) to the same shape."""
        n, hidden = self.hidden.natural, self.hidden
        gates = self.gates(x[:, 0, : self.channels.natural]).sigmoid()
        first = self.up.map_degree(x, 0)
        scalars = functional.silu(first[..., :n])
        if hidden.unnatural:
            pseudo = first[..., n:] * gates[:, None, : hidden.unnatural]
            scalars = torch.cat([scalars, pseudo], dim=2)
        parts = [self.down.map(scalars, 0)]
        gates = gates[:, hidden.unnatural :].unflatten(1, (-1, hidden.total))
        for degree in range(1, gates.shape[1] + 1):
            gated = self.up.map_degree(x, degree) * gates[:, degree - 1, None]
            parts.append(self.down.map(gated, degree))
        return torch.cat(parts, dim=1)


def count_gates(lmax: int, channels: Channels) -> int:
    """Return the number of sigmoids that gate all but true scalars."""
    return channels.unnatural + lmax * channels.total


class SO2Weights(nn.Module):
    """Weights and bias of a linear map in the frames of edges, as `so2_linear` takes them.

    Args:
        layout: Degrees and orders.
        inputs: Channels that come in.
        outputs: Channels that go out.
        n_extra: Number of additional scalars that go out.
    """

    def __init__(self, layout: Layout, inputs: int, outputs: int, n_extra: int = 0) -> None:
        super().__init__()
        self.n_extra = n_extra
        weights = []
        for m, shape in enumerate(layout.list_weight_shapes(inputs, outputs, n_extra)):
            # Two products enter each component of an order above 0.
            weights.append(torch.randn(shape) / sqrt(shape[-2] * (2 if m else 1)))
        self.weights = nn.ParameterList(weights)
        self.bias = nn.Parameter(torch.zeros(layout.count_degrees(0) * outputs + n_extra))

    def forward(self) -> tuple[list[Tensor], Tensor]:
        """Return weights and bias."""
        return list(self.weights), self.bias


class SO2ParityWeights(nn.Module):
    """The same of a map that commutes with reflections, too.

    Features of unnatural parity are turned by a quarter, see `pipeline_kernels.equivariant.so2`.
    Order 0 has a map for each parity, every other order one real matrix for both.

    Args:
        layout: Degrees and orders.
        inputs: Channels that come in, in turn.
        outputs: Channels that go out.
        n_extra: Number of additional true scalars that go out.
        axial: Whether any unnatural component of order 0 comes in.
    """

    place: Tensor

    def __init__(
        self,
        layout: Layout,
        inputs: Sequence[Channels],
        outputs: Channels,
        n_extra: int = 0,
        *,
        axial: bool = True,
    ) -> None:
        super().__init__()
        self.n_extra, self.outputs, self.n_degrees = n_extra, outputs, layout.count_degrees(0)
        kinds = [k for part in inputs for k in part.natural * [False] + part.unnatural * [True]]
        unnatural = torch.tensor(kinds)
        self.n_unnatural = int(unnatural.sum())
        n = self.n_degrees
        natural = n * (len(kinds) - self.n_unnatural), n * outputs.natural + n_extra
        self.natural = nn.Parameter(torch.randn(natural) / sqrt(natural[0]))
        self.unnatural: nn.Parameter | None = None
        if axial and self.n_unnatural and outputs.unnatural:
            shape = n * self.n_unnatural, n * outputs.unnatural
            self.unnatural = nn.Parameter(torch.randn(shape) / sqrt(shape[0]))
        shapes = layout.list_weight_shapes(len(kinds), outputs.total)[1:]
        self.others = nn.ParameterList(torch.randn(shape[1:]) / sqrt(shape[1]) for shape in shapes)
        self.bias = nn.Parameter(torch.zeros(natural[1]))
        # Where inputs lie if natural ones come first.
        place = unnatural.int().argsort(stable=True).argsort()
        self.register_buffer("place", place, persistent=False)

    def forward(self) -> tuple[list[Tensor], Tensor]:
        """Return weights and bias, with zeros between parities in order 0."""
        return [self._join_order_zero(), *self.others], self._spread(self.bias)

    def _join_order_zero(self) -> Tensor:
        """Return the weights of order 0, rows (degree, channel)."""
        n = self.n_degrees
        natural = self._spread(self.natural).unflatten(0, (n, -1))
        if self.unnatural is None:
            unnatural = natural.new_zeros(n, self.n_unnatural, natural.shape[2])
        else:
            columns = self.unnatural.unflatten(1, (n, -1))
            columns = functional.pad(columns, (self.outputs.natural, 0)).flatten(1)
            unnatural = functional.pad(columns, (0, self.n_extra)).unflatten(0, (n, -1))
        return torch.cat([natural, unnatural], dim=1)[:, self.place].flatten(0, 1)

    def _spread(self, columns: Tensor) -> Tensor:
        """Put zeros between columns of natural channels and of extra scalars."""
        n_main = columns.shape[-1] - self.n_extra
        main, extra = columns.split([n_main, self.n_extra], dim=-1)
        main = functional.pad(main.unflatten(-1, (self.n_degrees, -1)), (0, self.outputs.unnatural))
        return torch.cat([main.flatten(-2), extra], dim=-1)


def make_so2_weights(
    layout: Layout,
    inputs: Sequence[Channels],
    outputs: Channels,
    n_extra: int = 0,
    *,
    axial: bool = True,
) -> SO2Weights | SO2ParityWeights:
    """Return a map in the frames of edges, of both parities if some channels are unnatural.

    Args:
        layout: Degrees and orders.
        inputs: Channels that come in, in turn.
        outputs: Channels that go out.
        n_extra: Number of additional true scalars that go out.
        axial: Whether any unnatural component of order 0 comes in.
    """
    if outputs.unnatural:
        return SO2ParityWeights(layout, inputs, outputs, n_extra, axial=axial)
    total = sum(part.total for part in inputs)
    return SO2Weights(layout, total, outputs.total, n_extra)
