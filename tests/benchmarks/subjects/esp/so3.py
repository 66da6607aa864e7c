"""The network of the plugin, its maps in the frames of edges written as tensor products of e3nn.

A map of each order m in the frame of an edge is a tensor product with the harmonics of the edge,
and the other way round (S. Passaro and C. L. Zitnick, arXiv:2302.03655): of degrees l and l' it
takes 2 min(l, l') + 1 matrices either way, of orders or of harmonics of degrees |l - l'| to l + l'.

So with harmonics to degree 2 lmax this is the same function of the same number of weights, and the
weights are ours, brought to the other form. With harmonics to a lower degree, such as the lmax at
which networks of tensor products usually end, weights are fewer, random, and the function is
another. All that is no map in a frame is the plugin's own.
"""

from itertools import product
from math import sqrt
from typing import Any

import torch
from e3nn import o3
from torch import Tensor, nn

from harness.structures import Arrays
from pipeline_atoms.potential.potential import compute_edge_vectors
from pipeline_core.task import Outputs
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.model import layers
from pipeline_egnn_esp.model.maps import SO2Weights
from pipeline_egnn_esp.model.messages import Edges
from pipeline_egnn_esp.model.messages import Messages as OurMessages
from pipeline_egnn_esp.model.network import Network as Blocks
from pipeline_egnn_esp.options import ESPOptions
from pipeline_kernels.equivariant.so2 import Layout, compute_gate_factors
from pipeline_kernels.equivariant.so2.reference import repeat_by_degree
from pipeline_kernels.equivariant.wigner import PERMUTATION
from pipeline_kernels.message.softmax import segment_softmax
from subjects.esp import ours


class Network(ours.Network):
    """The same with tensor products; `harmonics` of the options is their highest degree."""

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        self.degree = options["harmonics"]
        irreps = make_even_irreps([1] * (self.degree + 1))
        self.harmonics = o3.SphericalHarmonics(
            irreps, normalize=True, normalization="component", irreps_in="1e"
        )
        super().__init__(arrays, options)

    def network(self, model: ESPOptions, basis: Basis, cutoff: float) -> Blocks:
        network = super().network(model, basis, cutoff)
        for node in network.node_blocks:
            node.attention = Attention(node.attention, self.degree)
        blocks = [EdgeBlock(block, self.degree) for block in network.edge_blocks]
        network.edge_blocks = nn.ModuleList(blocks)
        return network

    def predict(self) -> Outputs:
        vectors = compute_edge_vectors(self.data)[:, PERMUTATION]
        # The place of the Wigner matrices, which are not needed.
        return self.model(self.data | {"frames": self.harmonics(vectors).float()})


class Products(nn.Module):
    """A tensor product with weights, and biases that turn with the edge.

    Args:
        given: The map in the frame.
        layout: Degrees and orders of the map.
        degree: The highest of the harmonics.
    """

    def __init__(self, given: SO2Weights, layout: Layout, degree: int) -> None:
        super().__init__()
        n_degrees = layout.lmax + 1
        self.n_extra, self.lmax = given.n_extra, layout.lmax
        inputs, n_main = len(given.weights[0]), given.weights[0].shape[1] - given.n_extra
        self.channels = inputs // n_degrees, n_main // n_degrees
        n_in, n_out = self.channels
        self.product = o3.FullyConnectedTensorProduct(
            make_even_irreps([n_in] * n_degrees),
            make_even_irreps([1] * (degree + 1)),
            make_even_irreps([n_out + self.n_extra] + [n_out] * layout.lmax),
        )
        self.bias = given.bias
        if degree >= 2 * layout.lmax:
            self.product.weight.data = self.converted(given)

    def forward(self, x: Tensor, harmonics: Tensor) -> tuple[Tensor, Tensor]:
        """Map (n, (lmax + 1)², inputs) to (n, (lmax + 1)², outputs) and (n, n_extra)."""
        n_out, n_main = self.channels[1], len(self.bias) - self.n_extra
        rows = [slice(degree**2, (degree + 1) ** 2) for degree in range(self.lmax + 1)]
        y = self.product(torch.cat([x[:, part].mT.flatten(1) for part in rows], 1), harmonics)
        extra = y[:, n_out : n_out + self.n_extra] + self.bias[n_main:]
        blocks, begin = [], 0
        for part, bias in zip(rows, self.bias[:n_main].split(n_out), strict=True):
            size = part.stop - part.start
            block = y[:, begin : begin + n_out * size].unflatten(1, (n_out, size)).mT
            blocks.append(block + harmonics[:, part, None] * (bias / sqrt(size)))
            begin += n_out * size + (self.n_extra if begin == 0 else 0)
        return torch.cat(blocks, 1), extra

    def converted(self, given: SO2Weights) -> Tensor:
        """Return the weights that make the tensor product the given map."""
        degrees, parts = range(self.lmax + 1), {}
        for l_in, l_out in product(degrees, degrees):
            matrices = self.matrices(given, l_in, l_out)
            weights = torch.linalg.solve(list_frame_products(l_in, l_out), matrices.flatten(1))
            for k, weight in enumerate(weights):
                parts[l_in, abs(l_in - l_out) + k, l_out] = weight
        paths = self.product.instructions
        result = [parts[path.i_in1, path.i_in2, path.i_out] / path.path_weight for path in paths]
        return torch.cat(result).float()

    def matrices(self, given: SO2Weights, l_in: int, l_out: int) -> Tensor:
        """Return the matrices of m = 0, then the two of each m > 0, between two degrees."""
        n_in, n_out = self.channels
        result = []
        for m, weights in enumerate(list(given.weights)[: min(l_in, l_out) + 1]):
            W = weights.detach().double()
            rows = W[..., (l_in - m) * n_in : (l_in - m + 1) * n_in, :]
            main = rows[..., (l_out - m) * n_out : (l_out - m + 1) * n_out]
            if l_out == 0:
                main = torch.cat([main, rows[:, n_out * (self.lmax + 1) :]], 1)
            result += list(main) if m else [main]
        # Nothing comes in of orders that the map leaves out.
        missing = 2 * min(l_in, l_out) + 1 - len(result)
        return torch.stack(result + missing * [torch.zeros_like(result[0])])


def list_frame_products(l_in: int, l_out: int) -> Tensor:
    """Return what products with harmonics are in the frame, where those of m = 0 alone are there.

    Returns:
        Elements (0, 0), then (m, m) and (m, -m) for each m > 0, of the product with each degree,
        (2 min(l_in, l_out) + 1, as many).
    """
    columns = []
    for degree in range(abs(l_in - l_out), l_in + l_out + 1):
        C = sqrt(2 * degree + 1) * o3.wigner_3j(l_in, degree, l_out, dtype=torch.float64)[:, degree]
        signed = [(m, sign * m) for m in range(min(l_in, l_out) + 1) for sign in (1, -1)][1:]
        columns.append(torch.stack([C[l_in + m, l_out + k] for m, k in signed]))
    return torch.stack(columns, 1)


class Messages(nn.Module):
    """`messages.Messages` of the plugin."""

    def __init__(self, given: OurMessages, degree: int) -> None:
        super().__init__()
        self.layout, self.radial = given.layout, given.radial
        self.linear = Products(given.linear, given.layout, degree)

    def forward(self, x: Tensor, e: Tensor, edges: Edges) -> tuple[Tensor, Tensor]:
        rows = torch.cat([x[edges.senders.index], x[edges.receivers.index], e], 2)
        return self.linear(rows * repeat_by_degree(self.radial(edges), self.layout), edges.frames)


class Attention(nn.Module):
    """`layers.Attention`."""

    def __init__(self, given: layers.Attention, degree: int) -> None:
        super().__init__()
        self.messages = Messages(given.messages, degree)
        self.values = Products(given.values, given.layout, degree)
        self.score, self.direction, self.out = given.score, given.direction, given.out
        self.n_scores, self.values_of_head = given.n_scores, given.values_of_head.total

    def forward(self, x: Tensor, e: Tensor, edges: Edges) -> Tensor:
        messages, extra = self.messages(x, e, edges)
        scores, gates = extra.tensor_split([self.n_scores], 1)
        values, _ = self.values(multiply_gates(messages, gates, self.messages.layout), edges.frames)
        logits = (self.score(scores.unflatten(1, self.direction.shape)) * self.direction).sum(2)
        attention = segment_softmax(logits, edges.receivers)
        terms = values * attention.repeat_interleave(self.values_of_head, 1)[:, None]
        summed = terms.new_zeros(edges.receivers.n_segments, *terms.shape[1:])
        return self.out(summed.index_add(0, edges.receivers.index, terms))


class EdgeBlock(nn.Module):
    """`layers.EdgeBlock`."""

    def __init__(self, given: layers.EdgeBlock, degree: int) -> None:
        super().__init__()
        self.messages = Messages(given.messages, degree)
        self.norms, self.out, self.feed_forward = given.norms, given.out, given.feed_forward

    def forward(self, x: Tensor, e: Tensor, edges: Edges) -> Tensor:
        first, second = self.norms
        messages, gates = self.messages(x, first(e), edges)
        y = e + self.out(multiply_gates(messages, gates, self.messages.layout))
        return self.feed_forward(y, second)


def multiply_gates(x: Tensor, gates: Tensor, layout: Layout) -> Tensor:
    """Multiply features by degree with their gates."""
    return x * repeat_by_degree(compute_gate_factors(x, gates, layout), layout)


def make_even_irreps(channels: list[int]) -> o3.Irreps:
    """Return irreps of degrees 0, 1, ...; all even, as without parity in the plugin."""
    return o3.Irreps([(n, (degree, 1)) for degree, n in enumerate(channels)])
