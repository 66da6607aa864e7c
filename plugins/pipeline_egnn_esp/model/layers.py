"""Blocks of a layer: convolutions in the frames of edges, attention, feed-forward networks.

Features are kept channels last: (n, (lmax + 1)², channels), components of degree 0, then of degree
1, and so on, each from m = -l to l. Attention and its normalisation follow EquiformerV2 (Liao et
al., arXiv:2306.12059), the pair of a node and an edge block Kaniselvan et al.,
"Distributed Equivariant Graph Neural Networks for Large-Scale Electronic Structure Prediction".

With `parity` some channels are of unnatural parity (`channels`). All features are natural at first;
blocks of the first layers leave out channels and components that are still zero (`irreps`).
"""

from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline_egnn_esp.model.irreps import Stage
from pipeline_egnn_esp.model.maps import (
    DegreeLinear,
    DegreeNorm,
    FeedForward,
    make_so2_weights,
    take_channels,
)
from pipeline_egnn_esp.model.messages import Edges, Messages
from pipeline_egnn_esp.options import ESPOptions
from pipeline_kernels.equivariant.so2 import compute_gate_factors, from_edges, so2_linear
from pipeline_kernels.message.softmax import segment_softmax


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
    """Sum of messages over the edges of each atom, weighted by a softmax over them.

    Args:
        options: Sizes of the network.
        n_elements: Number of elements.
        stage: Input and output channels.
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
        """Return the summed messages of each own atom, (n_own, (lmax + 1)², channels)."""
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
        """Expand the weights of heads to their channels."""
        counts = self.values_of_head.natural, self.values_of_head.unnatural
        return torch.cat([attention.repeat_interleave(n, 1) for n in counts if n], 1)


class NodeBlock(nn.Module):
    """Update of the atoms: x' = x + Attention(norm(x), e), then FeedForward(x').

    Args:
        options: Sizes of the network.
        n_elements: Number of elements.
        stage: Input and output channels.
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
            x: Own atoms, then ghost atoms, (n_own + n_halo, (lmax + 1)², channels).
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

    Each edge is updated independently, so that edges may be updated in parts.

    Args:
        options: Sizes of the network.
        n_elements: Number of elements.
        stage: Input and output channels.
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
        y = self.out(from_edges(messages, edges.frames, layout, None, factors, turned))
        y += e
        result: Tensor = self.feed_forward(y, second)
        return result
