"""Radial networks of a trained model as splines."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from pipeline_kernels.hermite import Jet, expand_jet, fit
from pipeline_mace.model.basis import AgnesiTransform, RadialBasis
from pipeline_mace.model.layers import SILU_GAIN, Interaction, RadialWeights, compute_densities

MAX_BYTES: Final = 2**32
"""Largest size of the tables in double precision: splines of many element pairs do not pay off."""


class Tables(NamedTuple):
    """Splines of the distance between 0 and the cutoff.

    Where radial functions depend on the elements of both ends, there is a table for each pair of
    elements that occur, one below the other, grouped by receiver; else there is one table.

    Attributes:
        layers: Weights of the tensor products, (n_tables 3 n_knots, n_paths channels) each.
        densities: Terms of the densities of all layers, (n_tables 3 n_knots, n_layers), or None.
        n_intervals: Number of intervals between knots.
        error: Largest error measured between knots, relative to the largest weight.
    """

    layers: list[Tensor]
    densities: Tensor | None
    n_intervals: int
    error: float

    @property
    def n_rows(self) -> int:
        """Number of rows of one table."""
        return len(Jet._fields) * (self.n_intervals + 1)


class RadialNetworks(NamedTuple):
    """Radial networks, which compute the weights of edges, in double precision.

    Attributes:
        basis: Radial basis of the network.
        transform: Transform of distances, if there is one.
        interactions: Interactions of all layers.
    """

    basis: RadialBasis
    transform: AgnesiTransform | None
    interactions: Sequence[Interaction]

    def tabulate(self, numbers: Sequence[int]) -> Tables:
        """Tabulate the networks for the elements that occur, all with the same knots.

        Args:
            numbers: Atomic numbers of the elements.

        Raises:
            ValueError: The networks vary too fast with the distance, or there are too many pairs.
        """
        pairs = [(a, b) for a in numbers for b in numbers] if self.transform else [(0, 0)]
        self._require_memory(len(pairs))
        has_density = self.interactions[0].density is not None

        def expand(distances: Tensor) -> list[Jet]:
            return [jet for pair in pairs for jet in self._expand(distances, pair)]

        tables, n_intervals, error = fit(expand, self.basis.cutoff)
        step = len(self.interactions) + has_density
        *layers, densities = (torch.cat(tables[k::step]) for k in range(step))
        if not has_density:
            return Tables([*layers, densities], None, n_intervals, error)
        return Tables(layers, densities, n_intervals, error)

    def _expand(self, distances: Tensor, pair: tuple[int, int]) -> Iterator[Jet]:
        """Yield the weights of all layers between two elements, and all densities, if any."""

        def compute_functions(r: Tensor) -> Tensor:
            ends = [torch.full_like(r, z, dtype=torch.int64) for z in pair]
            transformed = None if self.transform is None else self.transform(r, ends)
            radial: Tensor = self.basis(r, transformed)
            return radial

        jet = expand_jet(compute_functions, distances)
        for one in self.interactions:
            yield _propagate(one.radial, jet)
        weights: list[Tensor] = [x.density for x in self.interactions if x.density is not None]
        if weights:
            together = torch.cat(weights, dim=1)
            yield expand_jet(lambda r: compute_densities(compute_functions(r), together), distances)

    def _require_memory(self, n_pairs: int) -> None:
        """Check that tables are not too large, with 256 intervals.

        Raises:
            ValueError: They are too large.
        """
        width = sum(one.radial.weights[-1].shape[1] for one in self.interactions)
        if n_pairs * width * len(Jet._fields) * 256 * 8 > MAX_BYTES:
            raise ValueError(
                f"splines of the weights between {n_pairs} pairs of elements would take more than "
                f"{MAX_BYTES / 2**30:.0f} GiB; use the model without infer.compile"
            )


def _propagate(network: RadialWeights, jet: Jet) -> Jet:
    """Return the outputs of a network and two derivatives, given the same for its inputs."""
    *hidden, last = network.weights
    for w in hidden:
        z, slope, curvature = jet.apply(w * len(w) ** -0.5)
        gate = torch.sigmoid(z)
        first = gate * (1 + z * (1 - gate))  # derivatives of silu
        second = gate * (1 - gate) * (2 + z * (1 - 2 * gate))
        parts = z * gate, first * slope, second * slope**2 + first * curvature
        jet = Jet(*(SILU_GAIN * x for x in parts))
    return jet.apply(last * len(last) ** -0.5)
