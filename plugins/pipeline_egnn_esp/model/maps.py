"""Equivariant norms and linear maps of features, under rotations and optionally reflections.

Features are kept channels last: (n, (lmax + 1)², channels), components of degree 0, then of degree
1, and so on, each from m = -l to l. Channels of natural parity come first, see `channels`.

Weights are drawn so that a map keeps the variance of its input; biases are zero at first. No
weights mix parities. The remaining blocks are joined to one matrix with zeros between them:
features then go through one product and are not copied.
"""

from collections.abc import Sequence
from math import isqrt, sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline_egnn_esp.channels import Channels
from pipeline_kernels.equivariant.feed_forward import Weights, feed_forward, normalise
from pipeline_kernels.equivariant.linear import LinearPlan, equivariant_linear
from pipeline_kernels.equivariant.so2 import Layout


def join_blocks(one: Tensor, other: Tensor) -> Tensor:
    """Return the block-diagonal matrices (..., n, m) of two blocks."""
    upper = functional.pad(one, (0, other.shape[-1]))
    lower = functional.pad(other, (one.shape[-1], 0))
    return torch.cat([upper, lower], dim=-2)


def split_degrees(x: Tensor) -> tuple[Tensor, ...]:
    """Split (n, (lmax + 1)², channels) into the components of each degree."""
    sizes = [2 * degree + 1 for degree in range(isqrt(x.shape[1]))]
    return torch.split(x, sizes, dim=1)


def take_channels(x: Tensor, n: int) -> Tensor:
    """Return the first n channels; slicing all of them would cost a copy in the backward pass."""
    return x if n == x.shape[-1] else x[..., :n]


class DegreeNorm(nn.Module):
    """Layer normalisation of true scalars; all other features divided by their root mean square.

    Each degree above 0 counts the same in the mean; each channel of each has a learned scale.

    Args:
        lmax: Highest degree.
        channels: Channels of every degree.
    """

    def __init__(self, lmax: int, channels: Channels) -> None:
        super().__init__()
        self.scalars = nn.LayerNorm(channels.natural)
        self.scales = nn.Parameter(torch.ones(lmax, channels.total))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (n, (lmax + 1)², channels)."""
        z: Tensor = normalise(x, self.scalars.weight, self.scalars.bias, self.scales)
        return z


class DegreeLinear(nn.Module):
    """A linear map of the channels of each degree, with a bias of true scalars.

    Args:
        lmax: Highest degree.
        inputs: Input channels.
        outputs: Output channels.
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

    def join(self) -> Tensor:
        """Return the weights of both parities, (lmax + 1, inputs, outputs)."""
        if self.unnatural is None:
            return self.weights
        return join_blocks(self.weights, self.unnatural)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, (lmax + 1)², inputs) to (n, (lmax + 1)², outputs)."""
        weights, n_degrees = self.join().unbind(0), len(self.weights)
        plan, n_unnatural = LinearPlan.of([1] * n_degrees), weights[0].shape[1] - len(self.bias)
        bias = functional.pad(self.bias, (0, n_unnatural)) if n_unnatural else self.bias
        y = equivariant_linear(x, weights, plan, [1.0] * n_degrees, bias=bias)
        return y.to(x.dtype)  # features are in single precision under autocast, too


class FeedForward(nn.Module):
    """Residual block of two linear maps of each degree with a gate between.

    The gate is SiLU for true scalars, and sigmoids of true scalars for all other features.

    Args:
        lmax: Highest degree.
        channels: In and out.
        hidden: Channels in between.
    """

    def __init__(self, lmax: int, channels: Channels, hidden: Channels) -> None:
        super().__init__()
        self.up = DegreeLinear(lmax, channels, hidden)
        self.gates = nn.Linear(channels.natural, count_gates(lmax, hidden))
        nn.init.zeros_(self.gates.bias)
        self.down = DegreeLinear(lmax, hidden, channels)

    def forward(self, x: Tensor, norm: DegreeNorm) -> Tensor:
        """Return features plus the update from their norm, (n, (lmax + 1)², channels)."""
        up, gates, down = self.up, self.gates, self.down
        weights = Weights(
            *(norm.scalars.weight, norm.scalars.bias, norm.scales),
            *(up.join(), up.bias, gates.weight.T, gates.bias, down.join(), down.bias),
        )
        return feed_forward(x, weights)


def count_gates(lmax: int, channels: Channels) -> int:
    """Return the number of sigmoids that gate all features but true scalars."""
    return channels.unnatural + lmax * channels.total


class SO2Weights(nn.Module):
    """Weights and bias of a linear map in the frames of edges, as `so2_linear` takes them.

    Args:
        layout: Degrees and orders.
        inputs: Input channels.
        outputs: Output channels.
        n_extra: Number of additional output scalars.
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
    """Weights and bias of a linear map in the frames of edges that commutes with reflections, too.

    Features of unnatural parity are rotated by 90°, see `pipeline_kernels.equivariant.so2`.
    Order 0 has a map for each parity, every other order one real matrix for both.

    Args:
        layout: Degrees and orders.
        inputs: Input channels, in order.
        outputs: Output channels.
        n_extra: Number of additional true output scalars.
        axial: Whether the inputs have any unnatural component of order 0.
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
        # Places of the inputs if natural ones come first.
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
        """Insert zeros between columns of natural channels and of extra scalars."""
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

    Arguments as of `SO2ParityWeights`.
    """
    if outputs.unnatural:
        return SO2ParityWeights(layout, inputs, outputs, n_extra, axial=axial)
    total = sum(part.total for part in inputs)
    return SO2Weights(layout, total, outputs.total, n_extra)
