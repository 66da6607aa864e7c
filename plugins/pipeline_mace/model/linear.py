"""Equivariant linear maps.

Features are kept channels last: (n_atoms, components, channels), components of degree 0, then of
degree 1, and so on. Weights are drawn with unit variance and divided by the square root of the
number of terms they sum, as in e3nn, so that weights of mace-torch can be loaded.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from pipeline_kernels.equivariant.contraction import AtomsByElement
from pipeline_kernels.equivariant.linear import LinearPlan, differentiate_linear
from pipeline_mace.model.kernels import Kernels


class DegreeLinear(nn.Module):
    """A linear map of the channels of each degree.

    Args:
        channels: Channels of inputs and outputs.
        counts: Input representations of each degree from 0.
        kernels: Implementation of the map.
        divisor: Divisor of all results.
    """

    def __init__(
        self, channels: int, counts: Sequence[int], kernels: Kernels, divisor: float = 1
    ) -> None:
        super().__init__()
        self.plan, self.kernels = LinearPlan.of(counts), kernels
        self.weights = nn.ParameterList(torch.randn(n * channels, channels) for n in counts)
        self.factors = [len(w) ** -0.5 / divisor for w in self.weights]

    def forward(self, features: Tensor) -> Tensor:
        """Map (n, components in, channels) to (n, (degrees)², channels)."""
        return self.kernels.linear(features, [*self.weights], self.plan, self.factors)

    def reverse(self, by_mapped: Tensor) -> Tensor:
        """Return the derivative by the features, (n, components in, channels)."""
        return differentiate_linear(by_mapped, [*self.weights], self.plan, self.factors)


class ElementLinear(nn.Module):
    """A linear map of the channels of each degree, with separate weights for each element.

    Elsewhere this is a product with a one-hot vector; here the same weights are looked up.

    Args:
        n_elements: Number of elements.
        channels: Channels of inputs and outputs.
        n_degrees: Number of degrees, from 0.
        kernels: Implementation of the map.
    """

    def __init__(self, n_elements: int, channels: int, n_degrees: int, kernels: Kernels) -> None:
        super().__init__()
        self.kernels = kernels
        self.weights = nn.Parameter(torch.randn(n_degrees, n_elements, channels, channels))

    def forward(self, features: Tensor, atoms: AtomsByElement) -> Tensor:
        """Map (n_atoms, components, channels) to the components of the first degrees."""
        return self._map(self.kernels.linear, features, atoms)

    def reverse(self, by_mapped: Tensor, atoms: AtomsByElement) -> Tensor:
        """Return the derivative by the components of the first degrees of the features."""
        return self._map(differentiate_linear, by_mapped, atoms)

    def _map(
        self,
        function: Callable[..., Tensor],
        features: Tensor,
        atoms: AtomsByElement,
    ) -> Tensor:
        n_degrees, n_elements, channels, _ = self.weights.shape
        factors = [(channels * n_elements) ** -0.5] * n_degrees
        # All elements that occur at once: the derivative by one element's weights has full size.
        weights = self.weights.index_select(1, atoms.elements).unbind()
        plan = LinearPlan((1,) * n_degrees, features.shape[1])
        ordered = features.index_select(0, atoms.order)
        mapped = function(ordered, weights, plan, factors, _find_offsets(atoms))
        by_atom: Tensor = torch.empty_like(mapped).index_copy(0, atoms.order, mapped)
        return by_atom


def _find_offsets(atoms: AtomsByElement) -> Tensor:
    """Return the first place of each element that occurs, in the order of atoms, and the end."""
    element, first, _ = atoms.chunks.unbind(1)
    begins = first.new_full((len(atoms.elements) + 1,), len(atoms.order))
    return begins.scatter_reduce(0, element, first, "amin")
