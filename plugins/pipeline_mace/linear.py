"""Linear maps that respect representations.

Features are kept channels last: (n_atoms, components, channels), components of degree 0, then of
degree 1, and so on. Weights are drawn with unit variance and divided by the square root of the
number of terms they sum, as e3nn does, so that weights of mace-torch can be taken over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, nn

from pipeline_kernels.equivariant.contraction import AtomsByElement

MAX_PADDING: Final = 4
MAX_PADDED: Final = 2**16
"""Up to so many times the atoms, or so many, a GPU maps all elements in one product."""


def split(features: Tensor, degrees: Sequence[int]) -> list[Tensor]:
    """Return the components of each degree, (n, 2 l + 1, channels)."""
    return list(features.split([2 * degree + 1 for degree in degrees], dim=1))


class DegreeLinear(nn.Module):
    """A linear map of the channels of each degree.

    Args:
        inputs: Channels of each degree that come in; degrees count from 0.
        outputs: Channels of each degree that go out, no more degrees than come in.
    """

    def __init__(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        super().__init__()
        sizes = zip(inputs, outputs, strict=False)
        self.weights = nn.ParameterList(torch.randn(a, b) for a, b in sizes)

    def forward(self, parts: Sequence[Tensor]) -> Tensor:
        """Map parts (n, 2 l + 1, inputs[l]) of each degree to one (n, components, outputs)."""
        pairs = zip(parts, self.weights, strict=False)
        return torch.cat([part @ (w * len(w) ** -0.5) for part, w in pairs], dim=1)


class ElementLinear(nn.Module):
    """A linear map of the channels of each degree, with weights of its own for each element.

    What elsewhere is a product with a one-hot vector: the same weights, looked up. A CPU multiplies
    the atoms of one element after the other; a GPU, for which the launch of each product costs more
    than its work, all of them in one.

    Args:
        n_elements: Number of elements.
        channels: In and out.
        n_degrees: Degrees, from 0.
    """

    def __init__(self, n_elements: int, channels: int, n_degrees: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(n_degrees, n_elements, channels, channels))

    def forward(self, features: Tensor, atoms: AtomsByElement) -> Tensor:
        """Map (n_atoms, components, channels) to the components of the first degrees."""
        n_degrees, n_elements, channels, _ = self.weights.shape
        scale = (channels * n_elements) ** -0.5
        ordered = features[atoms.order, : n_degrees**2]
        counts = _count_elements(atoms)
        # Those that occur at once: the derivative by one of all elements has the size of all.
        weights = self.weights.index_select(1, atoms.elements) * scale
        padded = ordered.is_cuda and len(counts) * max(counts, default=0) <= max(
            MAX_PADDING * len(ordered), MAX_PADDED
        )
        mapped = (_multiply_padded if padded else _multiply_pieces)(ordered, weights, counts)
        by_atom: Tensor = torch.empty_like(mapped).index_copy(0, atoms.order, mapped)
        return by_atom


def _count_elements(atoms: AtomsByElement) -> list[int]:
    """Return the number of atoms of each element that occurs."""
    element, first, end = atoms.chunks.unbind(1)
    counts = atoms.chunks.new_zeros(len(atoms.elements))
    return counts.index_add(0, element, end - first).tolist()


def _multiply_pieces(ordered: Tensor, weights: Tensor, counts: Sequence[int]) -> Tensor:
    """Multiply atoms, sorted by element, with weights (n_degrees, elements at hand, in, out)."""
    by_degree = []
    for part, own in zip(split(ordered, range(len(weights))), weights.unbind(), strict=True):
        pieces = zip(part.split(list(counts)), own.unbind(), strict=True)
        by_degree.append(torch.cat([piece @ w for piece, w in pieces]))
    return torch.cat(by_degree, dim=1)


def _multiply_padded(ordered: Tensor, weights: Tensor, counts: Sequence[int]) -> Tensor:
    """Do the same in one product a degree: a GPU waits for the launch of each small one."""
    n_components, channels = ordered.shape[1:]
    longest, own = max(counts), torch.tensor(counts, device=ordered.device)
    begins = torch.arange(len(own), device=own.device) * longest - (own.cumsum(0) - own)
    rows = torch.arange(len(ordered), device=own.device) + begins.repeat_interleave(
        own, output_size=len(ordered)
    )
    room = ordered.new_zeros(len(own) * longest, n_components, channels).index_copy(
        0, rows, ordered
    )
    by_degree = [
        (part.reshape(len(own), -1, channels) @ w).view(len(room), -1, w.shape[-1])
        for part, w in zip(split(room, range(len(weights))), weights.unbind(), strict=True)
    ]
    return torch.cat(by_degree, dim=1).index_select(0, rows)
