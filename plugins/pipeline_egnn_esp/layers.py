"""Blocks of a layer: convolutions in the frames of edges, attention, feed-forward.

Features are kept channels last: (n, (lmax + 1)², channels), components of degree 0, then of degree
1, and so on, each from m = -l to l. Attention and its normalisation are those of EquiformerV2 (Liao
et al., arXiv:2306.12059), the pair of a node and an edge block those of Kaniselvan et al.,
"Distributed Equivariant Graph Neural Networks for Large-Scale Electronic Structure Prediction".

With `parity` some channels are of unnatural parity (`channels`). All features are natural at first;
blocks of the first layers leave out channels and components that are still zero (`stages`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline_egnn_esp.maps import (
    DegreeLinear,
    DegreeNorm,
    FeedForward,
    count_gates,
    make_so2_weights,
    take_channels,
)
from pipeline_egnn_esp.options import ESPOptions
from pipeline_egnn_esp.stages import Stage
from pipeline_kernels.equivariant.so2 import (
    Layout,
    Table,
    compute_gate_factors,
    from_edges,
    so2_convolution,
    so2_linear,
)
from pipeline_kernels.message import Segments
from pipeline_kernels.message.softmax import segment_softmax

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


class Messages(nn.Module):
    """Messages [x_sender, x_receiver, e] by order in the frame of their edge, and scalars.

    The channels of the three, scaled by radial weights, turned to the frame and mixed.

    Args:
        options: Sizes of the network.
        n_elements: Number of elements.
        stage: What comes in, and what goes out.
        n_extra: Number of scalars.
    """

    def __init__(
        self, options: ESPOptions, n_elements: int, stage: Stage, n_extra: int = 0
    ) -> None:
        super().__init__()
        self.layout = Layout(options.lmax, stage.mmax)
        self.inputs = stage.atoms, stage.atoms, stage.edges
        self.radial = RadialWeights(options, n_elements, sum(part.total for part in self.inputs))
        self.hidden = stage.hidden
        self.n_extra = n_extra + count_gates(options.lmax, stage.hidden)
        self.linear = make_so2_weights(
            self.layout, self.inputs, stage.hidden, self.n_extra, axial=stage.axial
        )

    def forward(self, x: Tensor, e: Tensor, edges: Edges) -> tuple[Tensor, Tensor]:
        """Return messages (n_edges, components, hidden channels) and scalars (n_edges, n_extra)."""
        features = x, x[: edges.receivers.n_segments], e
        rows = edges.senders, edges.receivers, None
        weights, bias = self.linear()
        return so2_convolution(
            [
                Table(take_channels(part, channels.total), ends, channels.unnatural)
                for part, ends, channels in zip(features, rows, self.inputs, strict=True)
            ],
            edges.frames,
            weights,
            bias,
            self.layout,
            self.radial(edges),
            self.n_extra,
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
        stage: What comes in, and what goes out.
    """

    def __init__(self, options: ESPOptions, n_elements: int, stage: Stage) -> None:
        super().__init__()
        self.heads, self.values_of_head = options.heads, stage.values
        width = options.attention_channels
        self.n_scores = self.heads * width
        self.messages = Messages(options, n_elements, stage, self.n_scores)
        self.layout = self.messages.layout
        summed = stage.values.repeat(self.heads)
        self.n_turned = summed.unnatural
        self.values = make_so2_weights(self.layout, [stage.hidden], summed, axial=stage.axial)
        self.score = nn.Sequential(nn.LayerNorm(width), SmoothLeakyReLU())
        self.direction = nn.Parameter(torch.randn(self.heads, width) / sqrt(width))
        self.out = DegreeLinear(options.lmax, summed, stage.outputs)

    def forward(self, x: Tensor, e: Tensor, edges: Edges) -> Tensor:
        """Return what each own atom receives, (n_own, (lmax + 1)², channels)."""
        messages, extra = self.messages(x, e, edges)
        scores, gates = extra.tensor_split([self.n_scores], 1)
        factors = compute_gate_factors(messages, gates, self.layout)
        weights, bias = self.values()
        values, _ = so2_linear(messages, weights, bias, self.layout, factors)
        logits = self._compute_logits(scores)
        if edges.fading is not None:
            logits = logits + edges.fading[:, None]
        attention = segment_softmax(logits, edges.receivers)  # (n_edges, heads)
        spread = self._spread(attention)[:, None]
        summed = from_edges(
            values, edges.frames, self.layout, edges.receivers, spread, self.n_turned
        )
        mapped: Tensor = self.out(summed)
        return mapped

    def _compute_logits(self, scores: Tensor) -> Tensor:
        scored: Tensor = self.score(scores.unflatten(1, self.direction.shape))
        return (scored * self.direction).sum(2)

    def _spread(self, attention: Tensor) -> Tensor:
        """Give each channel that is summed the weight of its head."""
        counts = self.values_of_head.natural, self.values_of_head.unnatural
        return torch.cat([attention.repeat_interleave(n, 1) for n in counts if n], 1)


class NodeBlock(nn.Module):
    """Update of the atoms: x' = x + Attention(norm(x), e), then FeedForward(x').

    Args:
        options: Sizes of the network.
        n_elements: Number of elements.
        stage: What comes in, and what goes out.
    """

    def __init__(self, options: ESPOptions, n_elements: int, stage: Stage) -> None:
        super().__init__()
        lmax, self.inputs, self.outputs = options.lmax, stage.atoms, stage.outputs
        self.norms = nn.ModuleList(DegreeNorm(lmax, c) for c in (self.inputs, self.outputs))
        self.attention = Attention(options, n_elements, stage)
        self.feed_forward = FeedForward(lmax, self.outputs, stage.feed_forward)

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
        own = take_channels(x[: edges.receivers.n_segments], self.outputs.total)
        y = own + self.attention(first(take_channels(x, self.inputs.total)), e, edges)
        result: Tensor = self.feed_forward(y, second)
        return functional.pad(result, (0, x.shape[2] - self.outputs.total))


class EdgeBlock(nn.Module):
    """Update of edges: e' = e + Linear(message(x, norm(e))), then FeedForward(e').

    Each edge by itself, so that edges may be updated in parts.

    Args:
        options: Sizes of the network.
        n_elements: Number of elements.
        stage: What comes in, and what goes out.
    """

    def __init__(self, options: ESPOptions, n_elements: int, stage: Stage) -> None:
        super().__init__()
        lmax, self.inputs = options.lmax, stage.edges
        self.norms = nn.ModuleList(DegreeNorm(lmax, c) for c in (self.inputs, stage.outputs))
        self.messages = Messages(options, n_elements, stage)
        self.out = DegreeLinear(lmax, stage.hidden, stage.outputs)
        self.feed_forward = FeedForward(lmax, stage.outputs, stage.feed_forward)

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
        messages, gates = self.messages(x, first(take_channels(e, self.inputs.total)), edges)
        layout = self.messages.layout
        factors = compute_gate_factors(messages, gates, layout)
        turned = self.messages.hidden.unnatural
        y = e + self.out(from_edges(messages, edges.frames, layout, None, factors, turned))
        result: Tensor = self.feed_forward(y, second)
        return result
