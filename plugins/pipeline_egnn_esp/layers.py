"""Blocks of a layer: convolutions in the frames of edges, attention, feed-forward.

Features are kept channels last: (n, (lmax + 1)², channels), components of degree 0, then of degree
1, and so on, each from m = -l to l. Attention and its normalisation are those of EquiformerV2 (Liao
et al., arXiv:2306.12059), the pair of a node and an edge block those of Kaniselvan et al.,
"Distributed Equivariant Graph Neural Networks for Large-Scale Electronic Structure Prediction".

Weights are drawn so that a map keeps the variance of its input; biases are zero at first.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline_egnn_esp.options import ESPOptions
from pipeline_kernels.equivariant.so2 import (
    Layout,
    compute_gate_factors,
    from_edges,
    so2_convolution,
    so2_linear,
)
from pipeline_kernels.message import Segments
from pipeline_kernels.message.softmax import segment_softmax

EPSILON: Final = 1e-5
"""Added to mean squares before division."""
SILU_GAIN: Final = 1.6791767923989418
"""1/sqrt(E[silu(z)²]) for normal z."""
EMBEDDING_RANGE: Final = 1e-3
"""Embeddings of the elements at the ends of an edge start within plus and minus this."""


@dataclass(frozen=True, eq=False)
class Edges:
    """Edges and the places of their ends among the atoms of a rank: first its own, then its halo.

    Attributes:
        receivers: Place of each receiver, one of the own atoms.
        senders: Place of each sender.
        frames: Wigner matrices of each edge, (n_edges, n_entries(lmax)).
        gaussians: Of each distance, (n_edges, radial_functions).
        elements: Elements of receiver and sender, by their place in the basis, (n_edges, 2).
        attended: Places and edges of those that atoms attend to; None if they do to all.
        fading: Logarithm of what the weight of each in the attention is multiplied by, (n_edges,).
    """

    receivers: Segments
    senders: Segments
    frames: Tensor
    gaussians: Tensor
    elements: Tensor
    attended: tuple[Tensor, Edges] | None = None
    fading: Tensor | None = None

    def select(self, part: Tensor, n_senders: int) -> Edges:
        """Return some of the edges, which come from the first `n_senders` atoms."""
        return Edges(
            Segments.of(self.receivers.index[part], self.receivers.n_segments),
            Segments.of(self.senders.index[part], n_senders),
            self.frames[part],
            self.gaussians[part],
            self.elements[part],
        )


class DegreeNorm(nn.Module):
    """Layer normalisation of degree 0; all others divided by their common root mean square.

    Each degree counts the same in the mean; each channel of each degree has a learned scale.

    Args:
        lmax: Highest degree.
        channels: Of every degree.
    """

    degrees: Tensor
    shares: Tensor

    def __init__(self, lmax: int, channels: int) -> None:
        super().__init__()
        self.scalars = nn.LayerNorm(channels, eps=EPSILON)
        self.scales = nn.Parameter(torch.ones(lmax, channels))
        degrees = [degree for degree in range(1, lmax + 1) for _ in range(2 * degree + 1)]
        counts = torch.tensor([2 * degree + 1 for degree in degrees], dtype=torch.float64)
        self.register_buffer("degrees", torch.tensor(degrees), persistent=False)
        self.register_buffer("shares", 1 / (lmax * counts), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (n, (lmax + 1)², channels)."""
        first, others = x[:, :1], x[:, 1:]
        mean = others.square().mean(2) @ self.shares.to(x.dtype)  # (n,)
        scales = (mean + EPSILON).rsqrt()[:, None, None] * self.scales[self.degrees - 1]
        return torch.cat([self.scalars(first).to(x.dtype), others * scales], dim=1)


class DegreeLinear(nn.Module):
    """A linear map of the channels of each degree, with a bias of degree 0.

    Args:
        lmax: Highest degree.
        inputs: Channels that come in.
        outputs: Channels that go out.
    """

    def __init__(self, lmax: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(lmax + 1, inputs, outputs) / sqrt(inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def map_degree(self, x: Tensor, degree: int) -> Tensor:
        """Map components of all degrees (n, (lmax + 1)², inputs) to those of one degree."""
        return self.map(x[:, degree**2 : (degree + 1) ** 2], degree)

    def map(self, part: Tensor, degree: int) -> Tensor:
        """Map the components of one degree, (n, 2 l + 1, inputs)."""
        mapped = part @ self.weights[degree]
        return mapped if degree else mapped + self.bias

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, (lmax + 1)², inputs) to (n, (lmax + 1)², outputs)."""
        degrees = range(len(self.weights))
        return torch.cat([self.map_degree(x, degree) for degree in degrees], dim=1)


class FeedForward(nn.Module):
    """Two linear maps of each degree with a gate between: SiLU of degree 0, sigmoids of scalars.

    Args:
        lmax: Highest degree.
        channels: In and out.
        hidden: Channels in between.
    """

    def __init__(self, lmax: int, channels: int, hidden: int) -> None:
        super().__init__()
        self.up = DegreeLinear(lmax, channels, hidden)
        self.gates = nn.Linear(channels, lmax * hidden)
        nn.init.zeros_(self.gates.bias)
        self.down = DegreeLinear(lmax, hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, (lmax + 1)², channels) to the same shape."""
        first = self.up.map_degree(x, 0)
        parts = [self.down.map(functional.silu(first), 0)]
        n_gates = len(self.up.weights) - 1
        gates = self.gates(x[:, 0]).sigmoid().unflatten(1, (n_gates, first.shape[2]))
        for degree in range(1, n_gates + 1):
            gated = self.up.map_degree(x, degree) * gates[:, degree - 1, None]
            parts.append(self.down.map(gated, degree))
        return torch.cat(parts, dim=1)


class RadialWeights(nn.Module):
    """A perceptron from distance and elements of an edge to factors of features.

    Args:
        options: Sizes of the network.
        n_elements: Number of elements.
        n_features: Number of features of each degree.
    """

    def __init__(self, options: ESPOptions, n_elements: int, n_features: int) -> None:
        super().__init__()
        channels, outputs = options.channels, n_features * (options.lmax + 1)
        self.receivers, self.senders = (nn.Embedding(n_elements, channels) for _ in range(2))
        for embedding in (self.receivers, self.senders):
            nn.init.uniform_(embedding.weight, -EMBEDDING_RANGE, EMBEDDING_RANGE)
        layers: list[nn.Module] = []
        for inputs in (options.radial_functions + 2 * channels, channels):
            layers += [nn.Linear(inputs, channels), nn.LayerNorm(channels), nn.SiLU()]
        self.perceptron = nn.Sequential(*layers, nn.Linear(channels, outputs))
        for layer in self.perceptron:
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=SILU_GAIN / sqrt(layer.in_features))
                nn.init.zeros_(layer.bias)
        self.n_degrees = options.lmax + 1

    def forward(self, edges: Edges) -> Tensor:
        """Return the factors of each degree and feature, (n_edges, lmax + 1, n_features)."""
        receiver, sender = edges.elements.unbind(1)
        ends = self.senders(sender), self.receivers(receiver)
        factors: Tensor = self.perceptron(torch.cat([edges.gaussians, *ends], dim=1))
        factors = factors.to(edges.frames.dtype)
        return torch.unflatten(factors, 1, (self.n_degrees, -1))


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


class Messages(nn.Module):
    """Messages [x_sender, x_receiver, e] by order in the frame of their edge, and scalars.

    The channels of the three, scaled by radial weights, turned to the frame and mixed.

    Args:
        options: Sizes of the network.
        n_elements: Number of elements.
        n_extra: Number of scalars.
        mmax: Highest order of the messages.
    """

    def __init__(self, options: ESPOptions, n_elements: int, n_extra: int, mmax: int) -> None:
        super().__init__()
        self.layout = Layout(options.lmax, mmax)
        self.radial = RadialWeights(options, n_elements, 3 * options.channels)
        hidden = options.hidden_channels
        self.linear = SO2Weights(self.layout, 3 * options.channels, hidden, n_extra)

    def forward(self, x: Tensor, e: Tensor, edges: Edges) -> tuple[Tensor, Tensor]:
        """Return messages (n_edges, components, hidden_channels) and scalars (n_edges, n_extra)."""
        return so2_convolution(
            [x, x[: edges.receivers.n_segments], e],
            [edges.senders, edges.receivers, None],
            edges.frames,
            list(self.linear.weights),
            self.linear.bias,
            self.layout,
            self.radial(edges),
            self.linear.n_extra,
        )


class SmoothLeakyReLU(nn.Module):
    """(1 + a)/2 x + (1 - a)/2 x tanh(x/2): slope 1 far above zero, a far below.

    Args:
        slope: The slope a.
    """

    def __init__(self, slope: float = 0.2) -> None:
        super().__init__()
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        """Map each element."""
        return (1 + self.slope) / 2 * x + (1 - self.slope) / 2 * x * torch.tanh(x / 2)


class Attention(nn.Module):
    """Sums messages over the edges of each atom, weighted by a softmax over them.

    Args:
        options: Sizes of the network.
        n_elements: Number of elements.
        mmax: Highest order of the messages.
    """

    def __init__(self, options: ESPOptions, n_elements: int, mmax: int) -> None:
        super().__init__()
        self.heads, self.values_of_head = options.heads, options.value_channels
        width = options.attention_channels
        self.sizes = [self.heads * width, options.lmax * options.hidden_channels]
        self.messages = Messages(options, n_elements, sum(self.sizes), mmax)
        self.layout = self.messages.layout
        summed = self.heads * self.values_of_head
        self.values = SO2Weights(self.layout, options.hidden_channels, summed)
        self.score = nn.Sequential(nn.LayerNorm(width), SmoothLeakyReLU())
        self.direction = nn.Parameter(torch.randn(self.heads, width) / sqrt(width))
        self.out = DegreeLinear(options.lmax, summed, options.channels)

    def forward(self, x: Tensor, e: Tensor, edges: Edges) -> Tensor:
        """Return what each own atom receives, (n_own, (lmax + 1)², channels)."""
        messages, extra = self.messages(x, e, edges)
        scores, gates = extra.split(self.sizes, 1)
        factors = compute_gate_factors(messages, gates, self.layout)
        weights, bias = list(self.values.weights), self.values.bias
        values, _ = so2_linear(messages, weights, bias, self.layout, factors)
        logits = self._compute_logits(scores)
        if edges.fading is not None:
            logits = logits + edges.fading[:, None]
        attention = segment_softmax(logits, edges.receivers)  # (n_edges, heads)
        spread = attention.repeat_interleave(self.values_of_head, 1)[:, None]
        summed = from_edges(values, edges.frames, self.layout, edges.receivers, spread)
        mapped: Tensor = self.out(summed)
        return mapped

    def _compute_logits(self, scores: Tensor) -> Tensor:
        scored: Tensor = self.score(scores.unflatten(1, self.direction.shape))
        return (scored * self.direction).sum(2)


class NodeBlock(nn.Module):
    """Update of the atoms: x' = x + Attention(norm(x), e), then x' + FeedForward(norm(x')).

    Args:
        options: Sizes of the network.
        n_elements: Number of elements.
        is_first: Whether atoms come in with features of degree 0 alone, which have order 0 alone in
            the frame of an edge. Messages are then of order 0; other orders, which edges may have
            from their surroundings, act from the first edge block on.
    """

    def __init__(self, options: ESPOptions, n_elements: int, *, is_first: bool) -> None:
        super().__init__()
        lmax, channels = options.lmax, options.channels
        self.norms = nn.ModuleList(DegreeNorm(lmax, channels) for _ in range(2))
        self.attention = Attention(options, n_elements, 0 if is_first else lmax)
        self.feed_forward = FeedForward(lmax, channels, options.feed_forward_channels)

    def forward(self, x: Tensor, e: Tensor, edges: Edges) -> Tensor:
        """Update own atoms.

        Args:
            x: Own atoms, then the halo, (n_own + n_halo, (lmax + 1)², channels).
            e: (n_edges, (lmax + 1)², channels)
            edges: All edges that the own atoms receive.

        Returns:
            (n_own, (lmax + 1)², channels)
        """
        first, second = self.norms
        if edges.attended is not None:
            places, edges = edges.attended
            e = e[places]
        y = x[: edges.receivers.n_segments] + self.attention(first(x), e, edges)
        result: Tensor = y + self.feed_forward(second(y))
        return result


class EdgeBlock(nn.Module):
    """Update of edges: e' = e + Linear(message(x, norm(e))), then e' + FeedForward(norm(e')).

    Each edge by itself, so that edges may be updated in parts.

    Args:
        options: Sizes of the network.
        n_elements: Number of elements.
    """

    def __init__(self, options: ESPOptions, n_elements: int) -> None:
        super().__init__()
        lmax, channels, hidden = options.lmax, options.channels, options.hidden_channels
        self.norms = nn.ModuleList(DegreeNorm(lmax, channels) for _ in range(2))
        self.messages = Messages(options, n_elements, lmax * hidden, lmax)
        self.out = DegreeLinear(lmax, hidden, channels)
        self.feed_forward = FeedForward(lmax, channels, options.feed_forward_channels)

    def forward(self, x: Tensor, e: Tensor, edges: Edges) -> Tensor:
        """Update edges.

        Args:
            x: The atoms that the edges join, own ones first.
            e: (n_edges, (lmax + 1)², channels)
            edges: The edges of e.

        Returns:
            (n_edges, (lmax + 1)², channels)
        """
        first, second = self.norms
        messages, gates = self.messages(x, first(e), edges)
        layout = self.messages.layout
        factors = compute_gate_factors(messages, gates, layout)
        y = e + self.out(from_edges(messages, edges.frames, layout, None, factors))
        result: Tensor = y + self.feed_forward(second(y))
        return result
