"""Blocks of a layer of MACE: interaction, products, readout.

Features are kept channels last: (n_atoms, components, channels), components of degree 0, then of
degree 1, and so on.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline_atoms.domain import Domain
from pipeline_kernels.equivariant.contraction import (
    AtomsByElement,
    Polynomial,
    combine_coefficients,
)
from pipeline_kernels.equivariant.tensor_product import ProductPlan
from pipeline_kernels.message import segment_sum
from pipeline_kernels.message.silu import silu
from pipeline_mace.model.edges import EdgePlan
from pipeline_mace.model.kernels import KERNELS, Kernels
from pipeline_mace.model.linear import DegreeLinear, ElementLinear
from pipeline_mace.options import Gate, MACEOptions

SILU_GAIN: Final = 1.6791767923989418
"""1/sqrt(E[silu(z)²]) for normal z, as e3nn estimates it from a million samples."""
TANH_GAIN: Final = 1.5937334472592695
"""The same for tanh."""
MAX_WEIGHTS: Final = 2**27
"""Bytes of the weights of a layer above which a CPU calculates them part by part."""


def list_harmonics(lmax: int) -> str:
    """Return the representations of spherical harmonics: 0e+1o+2e+..."""
    return "+".join(f"{degree}{'eo'[degree % 2]}" for degree in range(lmax + 1))


class RadialWeights(nn.Module):
    """Perceptron from the radial basis to the weights of a tensor product.

    Args:
        inputs: Number of radial functions.
        hidden: Widths of the hidden layers.
        outputs: Number of weights of an edge.
        kernels: Implementation of the matrix product.
    """

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int, kernels: Kernels) -> None:
        super().__init__()
        self.kernels = kernels
        widths = [inputs, *hidden, outputs]
        sizes = pairwise(widths)
        self.weights = nn.ParameterList(torch.randn(a, b) for a, b in sizes)

    def forward(self, radial: Tensor) -> Tensor:
        """Map (n_edges, inputs) to (n_edges, outputs)."""
        x, last = self.divide(radial)
        return self.kernels.multiply_tall(x, last)

    def divide(self, radial: Tensor) -> tuple[Tensor, Tensor]:
        """Return two factors of the weights: the last hidden layer, and the output map."""
        x, gain = radial, 1.0
        *hidden, last = self.weights
        for w in hidden:
            x = silu(self.kernels.multiply_tall(x, w * (gain * len(w) ** -0.5)))
            gain = SILU_GAIN  # on the next weights, which are fewer than the values of edges
        return x, last * (gain * len(last) ** -0.5)


class Interaction(nn.Module):
    """Sum of messages from neighbours (arXiv:2206.07697, eqs. 8 and 9).

    Args:
        plan: The tensor product.
        options: Options of the network.
        average_neighbours: Divisor of the sums, unless a density is learned.
        n_elements: Number of elements.
        residual: Degrees of the features to which the layer adds its result, 0 for none; then the
            messages themselves go through a map of their element.
    """

    density: nn.Parameter | None

    def __init__(
        self,
        plan: ProductPlan,
        options: MACEOptions,
        average_neighbours: float,
        n_elements: int,
        residual: int,
    ) -> None:
        super().__init__()
        self.kernels = KERNELS[options.kernels]
        self.plan, self.residual = plan, residual
        channels, n_radial = options.channels, options.radial_functions
        n_in = len(plan.irreps_in)
        lmax = max(irrep.l for irrep in plan.irreps_target)
        degrees = [irrep.l for irrep in plan.irreps_out]
        counts = [degrees.count(degree) for degree in range(lmax + 1)]
        self.up = DegreeLinear(channels, [1] * n_in, self.kernels)
        self.radial = RadialWeights(
            n_radial, options.radial_features, plan.n_paths * channels, self.kernels
        )
        has_density = options.normalization == "density"
        divisor = 1 if has_density else average_neighbours
        self.down = DegreeLinear(channels, counts, self.kernels, divisor)
        self.skip = ElementLinear(n_elements, channels, residual or lmax + 1, self.kernels)
        self.density = nn.Parameter(torch.randn(n_radial, 1)) if has_density else None

    def forward(
        self,
        features: Tensor,  # (n_atoms, components, channels)
        edge_harmonics: Tensor,  # (n_edges, (lmax + 1)²)
        radial: Tensor,  # (n_rows, functions)
        edges: EdgePlan,
        atoms: AtomsByElement,
        domain: Domain | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return messages (n_atoms, (lmax + 1)², channels), and the residual, if any.

        Receivers are the first of the sending atoms. With a domain, the features belong to own
        atoms; those of ghost atoms are exchanged between ranks while weights are calculated.
        """
        sent = self.up(features)
        request = None if domain is None else domain.start(sent)
        multiply = self._weigh(radial, edges)
        if request is not None:
            sent = request.wait()
        summed = multiply(sent, edge_harmonics)
        messages = self.down(summed)
        if self.density is not None:
            messages = messages / self._measure_density(radial, edges, self.density)
        if self.residual:
            is_part = len(features) > len(messages)  # no slice is recorded for whole structures
            return messages, self.skip(features[: len(messages)] if is_part else features, atoms)
        return self.skip(messages, atoms), None

    def _measure_density(self, radial: Tensor, edges: EdgePlan, density: Tensor) -> Tensor:
        """Return the divisors of the messages of each atom, (n_atoms, 1, 1)."""
        of_rows = compute_densities(radial, density)
        summed = segment_sum(edges.expand(of_rows), edges.graph.receivers)
        return (1 + summed)[:, :, None]

    def _weigh(self, radial: Tensor, edges: EdgePlan) -> Callable[[Tensor, Tensor], Tensor]:
        """Calculate weights; return the function that multiplies features and harmonics by them."""
        kernels, graph, plan = self.kernels, edges.graph, self.plan
        last = self.radial.weights[-1]
        n_bytes = len(radial) * last.shape[1] * radial.element_size()
        is_sorted = radial.device.type == "cpu" and not graph.receivers.order.numel()
        if n_bytes > MAX_WEIGHTS and is_sorted and not (self.training or last.requires_grad):
            # In training, derivatives keep the weights anyway, and the other products are faster.
            of_edges, ends = edges.expand(radial), (graph.senders, graph.receivers)
            return lambda h, Y: kernels.multiply_in_parts(h, Y, of_edges, self.radial, *ends, plan)
        if edges.distinct is None:
            w = self.radial(radial).unflatten(1, (plan.n_paths, -1))
            senders, receivers = graph.senders, graph.receivers
            return lambda h, Y: kernels.tensor_product(h, Y, w, senders, receivers, plan)
        x, A = self.radial.divide(radial)
        weights = kernels.mix_weights(x, A)
        return lambda h, Y: kernels.mixed_product(h, Y, x, A, graph, plan, weights)


def compute_densities(radial: Tensor, weights: Tensor) -> Tensor:
    """Return the terms of edges in the densities of their receivers, (n_edges, densities).

    Args:
        radial: (n_edges, functions).
        weights: (functions, densities).
    """
    return torch.tanh((radial @ (weights * len(weights) ** -0.5)) ** 2)


class ProductBasis(nn.Module):
    """Products of messages (arXiv:2206.07697, eqs. 10 and 11), and a linear map.

    Args:
        polynomial: The products.
        channels: Channels of every representation.
        n_elements: Number of elements.
        kernels: Implementation of the products.
    """

    def __init__(
        self, polynomial: Polynomial, channels: int, n_elements: int, kernels: Kernels
    ) -> None:
        super().__init__()
        self.kernels, self.polynomial = kernels, polynomial
        weights = torch.cat(
            [
                torch.randn(n_elements, block.n_weights, channels) / block.n_weights
                for block in polynomial.blocks
            ],
            dim=1,
        )
        self.weights = nn.Parameter(weights)
        n_out = len(polynomial.irreps_out)
        self.linear = DegreeLinear(channels, [1] * n_out, kernels)

    def forward(self, messages: Tensor, atoms: AtomsByElement) -> Tensor:
        """Map (n_atoms, (lmax + 1)², channels) to (n_atoms, components out, channels)."""
        c = combine_coefficients(self.weights, self.polynomial, atoms)
        products = self.kernels.contract(messages.contiguous(), c, self.polynomial, atoms)
        mapped: Tensor = self.linear(products)
        return mapped


class Readout(nn.Module):
    """Energies of an atom from its invariant features: linear, or with one hidden layer.

    Args:
        channels: Invariant features.
        hidden: Width of the hidden layer of each head, 0 for none.
        heads: Number of energies of an atom; each has its own part of the hidden layer.
        gate: Activation of the hidden layer.
    """

    def __init__(self, channels: int, hidden: int, heads: int = 1, gate: Gate = "silu") -> None:
        super().__init__()
        self.gate = _GATES[gate]
        widths = [channels, heads * hidden, heads] if hidden else [channels, heads]
        sizes = pairwise(widths)
        self.weights = nn.ParameterList(torch.randn(a, b) for a, b in sizes)

    def forward(self, features: Tensor) -> Tensor:
        """Map (n_atoms, channels) to (n_atoms, heads)."""
        *hidden, last = self.weights
        scale, heads = len(last) ** -0.5, last.shape[1]
        for w in hidden:
            features = self.gate(features @ (w * len(w) ** -0.5))
        if not hidden or heads == 1:
            energies: Tensor = features @ (last * scale)
            return energies
        # Weights from the hidden part of one head to the energy of another are not used.
        own = last.view(heads, -1, heads).diagonal(dim1=0, dim2=2)  # (hidden, heads)
        return torch.einsum("nhm,mh->nh", features.unflatten(1, (heads, -1)), own * scale)


_GATES: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "silu": lambda x: functional.silu(x) * SILU_GAIN,
    "tanh": lambda x: torch.tanh(x) * TANH_GAIN,
    "none": lambda x: x,
}
