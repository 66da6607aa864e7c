"""Radial networks of a trained model as splines."""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from pipeline_kernels.hermite import Jet, Places, expand_jet
from pipeline_mace.basis import RadialBasis
from pipeline_mace.layers import SILU_GAIN, RadialWeights

TOLERANCE: Final = 1e-8
"""Largest error of a spline, relative to the largest weight of its layer."""
_N_INTERVALS: Final = (64, 128, 256, 512, 1024)
_NEAREST: Final = 0.05
"""Knot intervals; the formula of Bessel functions divides by the distance, and none is asked for
at zero."""


class RadialTables(NamedTuple):
    """Weights of the tensor products of all layers as functions of the distance.

    Attributes:
        tables: Of each layer, (3 n_knots, n_paths channels) float64.
        n_intervals: Between knots, from 0 to the cutoff.
        error: The largest one, relative to the largest weight, as measured between knots.
    """

    tables: list[Tensor]
    n_intervals: int
    error: float


def tabulate(basis: RadialBasis, networks: list[RadialWeights]) -> RadialTables:
    """Tabulate radial networks, all with the same knots, as many as `TOLERANCE` asks for.

    Args:
        basis: In double precision.
        networks: Of each layer, in double precision.

    Raises:
        ValueError: The networks vary too fast with the distance.
    """
    for n_intervals in _N_INTERVALS:
        unit = basis.cutoff / n_intervals
        knots = torch.arange(n_intervals + 1, dtype=torch.float64).clamp(min=_NEAREST) * unit
        jet = expand_jet(basis, knots)
        tables = [_propagate(network, jet).tabulate(unit) for network in networks]
        pairs = zip(networks, tables, strict=True)
        error = max(_measure_error(basis, *pair, n_intervals) for pair in pairs)
        if error <= TOLERANCE:
            return RadialTables(tables, n_intervals, error)
    raise ValueError(
        f"splines of {n_intervals} intervals miss the radial networks by {error:.1g} of their "
        f"largest weight, where {TOLERANCE:.0e} is asked for; use the model without infer.compile"
    )


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


def _measure_error(
    basis: RadialBasis, network: RadialWeights, table: Tensor, n_intervals: int
) -> float:
    """Return the error in the middle of intervals, where it is largest; not in the first one."""
    middle = torch.arange(1, n_intervals, dtype=torch.float64) + 0.5
    exact = network(basis(middle * (basis.cutoff / n_intervals)))
    spline, _ = Places.of(middle, n_intervals).interpolate(table)
    return float((spline - exact).abs().max() / exact.abs().max())
