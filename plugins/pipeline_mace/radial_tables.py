"""Radial networks of a trained model as splines."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline_kernels.hermite import Fit, Jet, expand_jet, fit
from pipeline_mace.basis import RadialBasis
from pipeline_mace.layers import SILU_GAIN, RadialWeights


def tabulate(basis: RadialBasis, networks: Sequence[RadialWeights]) -> Fit:
    """Tabulate the weights of the tensor products of all layers, (n_paths channels) each.

    Args:
        basis: In double precision.
        networks: Of each layer, in double precision.

    Raises:
        ValueError: The networks vary too fast with the distance.
    """

    def expand(distances: Tensor) -> list[Jet]:
        jet = expand_jet(basis, distances)
        return [_propagate(network, jet) for network in networks]

    return fit(expand, basis.cutoff)


def _propagate(network: RadialWeights, jet: Jet) -> Jet:
    """Return the outputs of a network, and two derivatives, from those of its inputs."""
    *hidden, last = network.weights
    for w in hidden:
        z, slope, curvature = jet.apply(w * len(w) ** -0.5)
        gate = torch.sigmoid(z)
        first = gate * (1 + z * (1 - gate))  # derivatives of silu
        second = gate * (1 - gate) * (2 + z * (1 - 2 * gate))
        parts = z * gate, first * slope, second * slope**2 + first * curvature
        jet = Jet(*(SILU_GAIN * x for x in parts))
    return jet.apply(last * len(last) ** -0.5)
