"""Gated perceptron of CHGNet: its parameters, and the maps that messages apply."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Maps(NamedTuple):
    """Tensors of a gated perceptron; each consists of two halves, core and gate.

    Attributes:
        first: Weights of the first map that act on each part of the input, (2 width, n_part).
        bias: Bias of the first map, (2 width,).
        gain: Gain of the layer normalisation, (2, 1, n_out).
        shift: Shift of the layer normalisation, (2, 1, n_out).
        hidden: Weight (2, width, n_out) and bias (2, 1, n_out) of the second map, or None.
        projection: The last of `first` in another layout, (2, n_part, width).
    """

    first: tuple[Tensor, ...]
    bias: Tensor
    gain: Tensor
    shift: Tensor
    hidden: tuple[Tensor, Tensor] | None
    projection: Tensor


class GatedPerceptron(nn.Module):
    """Two perceptrons over the same inputs: silu(norm(core)) times sigmoid(norm(gate)).

    Args:
        inputs: Widths of the parts of the input.
        outputs: Width of the output.
        hidden: Width of the hidden layer, or None for none.
    """

    def __init__(self, inputs: Sequence[int], outputs: int, hidden: int | None = None) -> None:
        super().__init__()
        self.inputs = tuple(inputs)
        self.first = nn.Linear(sum(inputs), 2 * (hidden or outputs))
        self.second_weight: nn.Parameter | None = None
        self.second_bias: nn.Parameter | None = None
        if hidden is not None:
            bound = 1 / math.sqrt(hidden)  # as nn.Linear
            self.second_weight = nn.Parameter(
                torch.empty(2, hidden, outputs).uniform_(-bound, bound)
            )
            self.second_bias = nn.Parameter(torch.empty(2, 1, outputs).uniform_(-bound, bound))
        self.gain = nn.Parameter(torch.ones(2, 1, outputs))
        self.shift = nn.Parameter(torch.zeros(2, 1, outputs))
        self._kept: tuple[list[tuple[Tensor, int]], Maps] | None = None

    def split_maps(self) -> Maps:
        """Return the maps, centred, so that the layer normalisation needs no mean.

        The maps of a perceptron that is not trained are cached until its parameters change.
        """
        parameters = [*self.parameters()]
        if any(parameter.requires_grad for parameter in parameters):
            return self._center_maps()
        if self._kept is None or not _are_same(self._kept[0], parameters):
            views = [(parameter.detach(), parameter._version) for parameter in parameters]
            self._kept = views, self._center_maps()
        return self._kept[1]

    def _center_maps(self) -> Maps:
        weight: Tensor = self.first.weight
        bias: Tensor = self.first.bias
        hidden = None
        if self.second_weight is not None and self.second_bias is not None:
            hidden = _center(self.second_weight, 2), _center(self.second_bias, 2)
        else:  # the norm follows directly
            weight = _center(weight.unflatten(0, (2, -1)), 1).flatten(0, 1)
            bias = _center(bias.unflatten(0, (2, -1)), 1).flatten()
        parts = weight.split(self.inputs, dim=1)
        projection = parts[-1].unflatten(0, (2, -1)).mT.contiguous()
        return Maps(parts, bias, self.gain, self.shift, hidden, projection)


def _are_same(kept: Sequence[tuple[Tensor, int]], parameters: Sequence[Tensor]) -> bool:
    """Return True if parameters are unchanged since `kept`, their views and versions, was made."""
    return all(
        view.data_ptr() == parameter.data_ptr()
        and view.dtype == parameter.dtype
        and version == parameter._version
        for (view, version), parameter in zip(kept, parameters, strict=True)
    )


def _center(weight: Tensor, dim: int) -> Tensor:
    """Subtract the mean of the layer normalisation from its inputs' weights in advance."""
    return weight - weight.mean(dim, keepdim=True)
