"""Edges, and the messages along them: a convolution in the frame of each edge."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline_egnn_esp.model.irreps import Stage
from pipeline_egnn_esp.model.maps import count_gates, make_so2_weights, take_channels
from pipeline_egnn_esp.options import ESPOptions
from pipeline_kernels.equivariant.so2 import Layout, Table, so2_convolution
from pipeline_kernels.message import Segments, gather_sum

SILU_GAIN: Final = 1.6791767923989418
"""1/sqrt(E[silu(z)²]) for normal z."""
EMBEDDING_RANGE: Final = 1e-3
"""Bound of the initial embeddings of the elements at the ends of an edge."""


@dataclass(frozen=True, eq=False)
class Edges:
    """Edges, with the places of their ends among the atoms of a rank: own, then ghost atoms.

    Attributes:
        receivers: Place of each receiver, one of the own atoms.
        senders: Place of each sender.
        frames: Wigner matrices of each edge, (n_edges, n_entries(lmax)).
        gaussians: Gaussians of each distance, (n_edges, radial_functions).
        elements: Elements of receiver and sender, by their place in the basis, (n_edges, 2).
        attended: Places and edges that take part in the attention; None if all do.
        fading: Logarithm of the factor on the attention weight of each edge, (n_edges,).
    """

    receivers: Segments
    senders: Segments
    frames: Tensor
    gaussians: Tensor
    elements: Tensor
    attended: tuple[Tensor, Edges] | None = None
    fading: Tensor | None = None

    def select(self, part: Tensor, n_senders: int) -> Edges:
        """Return some of the edges, whose senders are among the first `n_senders` atoms."""
        return Edges(
            Segments.of(self.receivers.index[part], self.receivers.n_segments),
            Segments.of(self.senders.index[part], n_senders),
            self.frames[part],
            self.gaussians[part],
            self.elements[part],
        )


class RadialWeights(nn.Module):
    """Perceptron from the distance and elements of an edge to factors of features.

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
        factors: Tensor = self.last(self.expand(edges)).to(edges.frames.dtype)
        return torch.unflatten(factors, 1, (self.n_degrees, -1))

    @property
    def last(self) -> nn.Linear:
        """Last layer, which returns the factors."""
        layer = self.perceptron[-1]
        assert isinstance(layer, nn.Linear)
        return layer

    def expand(self, edges: Edges) -> Tensor:
        """Return the input of the last layer of the perceptron, (n_edges, channels)."""
        receiver, sender = edges.elements.unbind(1)
        ends = self.senders(sender), self.receivers(receiver)
        hidden: Tensor = self.perceptron[:-1](torch.cat([edges.gaussians, *ends], dim=1))
        return hidden

    def read(self, hidden: Tensor, rows: Tensor, edges: Edges) -> Tensor:
        """Return some of the factors, by their place among all degrees, (n_edges, n)."""
        factors = functional.linear(hidden, self.last.weight[rows], self.last.bias[rows])
        return factors.to(edges.frames.dtype)


class Messages(nn.Module):
    """Messages [x_sender, x_receiver, e] by order in the frame of their edge, and scalars.

    The channels of the three are scaled by radial weights, rotated to the frame and mixed. True
    scalars are equal in all frames: those of the three that are only true scalars enter order 0
    through one matrix product.

    Args:
        options: Sizes of the network.
        n_elements: Number of elements.
        stage: Input and output channels.
        n_extra: Number of scalars.
    """

    scalar_rows: Tensor
    other_rows: Tensor

    def __init__(
        self, options: ESPOptions, n_elements: int, stage: Stage, n_extra: int = 0
    ) -> None:
        super().__init__()
        self.layout = Layout(options.lmax, stage.mmax)
        self.inputs = stage.atoms, stage.atoms, stage.edges
        self.are_scalars = stage.scalar_atoms, stage.scalar_atoms, stage.scalar_edges
        self.radial = RadialWeights(options, n_elements, sum(part.total for part in self.inputs))
        self.hidden = stage.hidden
        self.n_extra = n_extra + count_gates(options.lmax, stage.hidden)
        self.linear = make_so2_weights(
            self.layout, self.inputs, stage.hidden, self.n_extra, axial=stage.axial
        )
        # Places (degree, channel) of the inputs: scalars have places of degree 0 only.
        kinds = zip(self.inputs, self.are_scalars, strict=True)
        scalar = torch.tensor([is_one for part, is_one in kinds for _ in range(part.total)])
        places = torch.arange((options.lmax + 1) * len(scalar)).unflatten(0, (-1, len(scalar)))
        self.register_buffer("scalar_rows", places[0, scalar], persistent=False)
        self.register_buffer("other_rows", places[:, ~scalar], persistent=False)

    def forward(self, x: Tensor, e: Tensor, edges: Edges) -> tuple[Tensor, Tensor]:
        """Return messages (n_edges, components, hidden channels) and scalars (n_edges, n_extra)."""
        tables, (weights, bias) = self._make_tables(x, e, edges), self.linear()
        if not any(self.are_scalars):
            return self._convolve(tables, edges, weights, bias, self.radial(edges))
        hidden = self.radial.expand(edges)
        scalars = self._gather_scalars(tables) * self.radial.read(hidden, self.scalar_rows, edges)
        of_scalars = scalars @ weights[0][self.scalar_rows]
        if all(self.are_scalars):
            return self._split(of_scalars + bias)
        others = [t for t, is_one in zip(tables, self.are_scalars, strict=True) if not is_one]
        weights = [W.index_select(-2, self._list_rows(m)) for m, W in enumerate(weights)]
        factors = self.radial.read(hidden, self.other_rows.flatten(), edges)
        factors = factors.unflatten(1, (len(self.other_rows), -1))
        return self._convolve(others, edges, weights, of_scalars + bias, factors)

    def _make_tables(self, x: Tensor, e: Tensor, edges: Edges) -> list[Table]:
        features = x, x[: edges.receivers.n_segments], e
        rows = edges.senders, edges.receivers, None
        return [
            Table(take_channels(part, channels.total), ends, channels.unnatural)
            for part, ends, channels in zip(features, rows, self.inputs, strict=True)
        ]

    def _convolve(
        self, tables: list[Table], edges: Edges, weights: list[Tensor], bias: Tensor, f: Tensor
    ) -> tuple[Tensor, Tensor]:
        return so2_convolution(tables, edges.frames, weights, bias, self.layout, f, self.n_extra)

    def _split(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Return messages of order 0, (n_edges, lmax + 1, hidden channels), and scalars."""
        main, extra = sums.tensor_split([sums.shape[1] - self.n_extra], 1)
        return main.unflatten(1, (len(self.other_rows), -1)), extra

    def _gather_scalars(self, tables: list[Table]) -> Tensor:
        """Return the features that are true scalars, (n_edges, n)."""
        parts = []
        for table, is_one in zip(tables, self.are_scalars, strict=True):
            x, rows = table.features[:, 0], table.rows
            if is_one:
                parts.append(x if rows is None else gather_sum([x], [rows]))
        return torch.cat(parts, dim=1)

    def _list_rows(self, m: int) -> Tensor:
        """Return the rows of the weights of an order that belong to non-scalar inputs."""
        # The first degree of an order is m.
        return self.other_rows[: self.layout.count_degrees(m)].flatten()
