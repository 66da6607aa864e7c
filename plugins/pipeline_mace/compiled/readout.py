"""Readout with constant weights: energies of atoms from invariant features, forward and reverse."""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline_mace.model.layers import SILU_GAIN, TANH_GAIN, Readout
from pipeline_mace.options import Gate


class CompiledReadout(nn.Module):
    """A `Readout` that sums the energies of its heads, each multiplied by a factor.

    Args:
        readout: Readout in double precision.
        gate: Activation of its hidden layer.
    """

    def __init__(self, readout: Readout, gate: Gate) -> None:
        super().__init__()
        self.gate = gate
        weights = [w * len(w) ** -0.5 for w in readout.weights]
        if len(weights) > 1:  # hidden units of one head do not contribute to others
            heads = weights[-1].shape[1]
            own = torch.eye(heads).to(weights[-1]).repeat_interleave(len(weights[-1]) // heads, 0)
            weights[-1] = weights[-1] * own
        self.weights = nn.ParameterList(weights)

    def forward(self, scalars: Tensor, factors: Tensor) -> Tensor:
        """Return energies (n_atoms,) from features (n_atoms, channels).

        Args:
            scalars: The features.
            factors: Factor of each head, (n_atoms, heads).
        """
        compute, _ = _GATES[self.gate]
        *hidden, last = self.weights
        for w in hidden:
            scalars = compute(scalars @ w)
        energies: Tensor = ((scalars @ last) * factors).sum(1)
        return energies

    def reverse(self, scalars: Tensor, factors: Tensor) -> Tensor:
        """Return the derivatives of the energies by the features, (n_atoms, channels)."""
        compute, differentiate = _GATES[self.gate]
        *hidden, last = self.weights
        slopes = []
        for w in hidden:
            z = scalars @ w
            slopes.append(differentiate(z))
            scalars = compute(z)
        g: Tensor = factors @ last.T
        for w, slope in zip(reversed(hidden), reversed(slopes), strict=True):
            g = (g * slope) @ w.T
        return g


def _differentiate_silu(z: Tensor) -> Tensor:
    gate = torch.sigmoid(z)
    return gate * (1 + z * (1 - gate)) * SILU_GAIN


_Function = Callable[[Tensor], Tensor]
_GATES: Final[dict[str, tuple[_Function, _Function]]] = {
    "silu": (lambda z: functional.silu(z) * SILU_GAIN, _differentiate_silu),
    "tanh": (lambda z: torch.tanh(z) * TANH_GAIN, lambda z: TANH_GAIN / torch.cosh(z).square()),
    "none": (lambda z: z, torch.ones_like),
}
"""Activation functions of hidden layers, and their derivatives."""
