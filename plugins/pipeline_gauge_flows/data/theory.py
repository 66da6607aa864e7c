"""Values of log Z and of plaquettes from theory: in 2D, or at strong coupling.

The Wilson action has a coupling beta_p in each plane p. A cube has two faces in each of its three
planes, so that the strong-coupling series up to the first cube is

    log Z / V = sum over p of log a_0(beta_p) + c sum over cubes of the product of u_p^2.

The first neglected term, of order u^10, are two cubes with a common face.
"""

from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline_gauge_flows.data.actions import GaugeAction
from pipeline_gauge_flows.data.exact import (
    compute_torus_log_z,
    compute_torus_plaquette,
    expand_characters,
)
from pipeline_gauge_flows.data.lattice import Lattice

Floats = NDArray[np.float64]

_CUBE_WEIGHTS: Final = {2: 4, 3: 18}
"""Sum of d_r^2 over the representations of the first cube: f, and its conjugate for SU(3)."""
_NEXT_ORDER: Final = 10
"""Number of plaquettes of the smallest closed surface that is neglected."""
_LARGEST: Final = 0.05
"""Largest neglected term of log Z, above which the series is not used."""


@dataclass(frozen=True)
class KnownValues:
    """Values from theory.

    Attributes:
        how: Method: exact or strong coupling.
        log_z: log Z.
        planes: Mean of Re tr P / N in each plane, (planes,).
        log_z_uncertainty: First neglected term of log Z; 0 where it is exact.
        plaquette_uncertainty: The resulting uncertainty of plaquettes.
    """

    how: Literal["exact", "strong coupling"]
    log_z: float
    planes: Floats
    log_z_uncertainty: float = 0.0
    plaquette_uncertainty: float = 0.0

    def describe_log_z(self) -> dict[str, Any]:
        """Return log Z with its source and uncertainty, JSON-able."""
        return {"how": self.how, "value": self.log_z, "uncertainty": self.log_z_uncertainty}

    def average_plaquettes(self, lattice: Lattice) -> dict[str, float]:
        """Return the values of observables that are averages of plaquettes, by name."""
        averages = {"plaquette": float(self.planes.mean())}
        if lattice.dimension > 2:
            time = np.array([mu == 0 for mu, _ in lattice.planes])
            averages["plaquette_time"] = float(self.planes[time].mean())
            averages["plaquette_space"] = float(self.planes[~time].mean())
        return averages


def compute_known(action: GaugeAction) -> KnownValues | None:
    """Return the theory values for an action; None if there are none, as with quarks."""
    if action.options.fermions is not None or action.rectangle_weight != 0:
        return None
    lattice, weights = action.lattice, action.weights.tolist()
    if lattice.dimension == 2:
        (beta,), n = weights, lattice.n_colours
        plaquette = compute_torus_plaquette(beta, n, lattice.volume)
        return KnownValues(
            "exact", compute_torus_log_z(beta, n, lattice.volume), np.array([plaquette])
        )
    largest, (first, second) = max(map(abs, weights)), sorted(lattice.extents)[:2]
    missing = _estimate_next_term(largest, lattice)
    # Surfaces around a short lattice are as important as cubes.
    if first * second < _NEXT_ORDER or missing > _LARGEST:
        return None
    log_z, planes = _sum_series(weights, lattice)
    slope = _NEXT_ORDER * missing / lattice.n_plaquettes / max(largest, 1e-9)
    return KnownValues("strong coupling", log_z, planes, missing, slope)


def _estimate_next_term(beta: float, lattice: Lattice) -> float:
    # The common face of two cubes is shared by 2 (D - 2) cubes.
    pairs = lattice.n_plaquettes * comb(2 * (lattice.dimension - 2), 2)
    u = expand_characters(beta, lattice.n_colours).u
    return float(pairs * _CUBE_WEIGHTS[lattice.n_colours] * u**_NEXT_ORDER)


def _sum_series(weights: list[float], lattice: Lattice) -> tuple[float, Floats]:
    """Return log Z and plaquettes by plane, (planes,)."""
    plane = {pair: number for number, pair in enumerate(lattice.planes)}
    cube = _CUBE_WEIGHTS[lattice.n_colours]
    expansions = [expand_characters(weight, lattice.n_colours) for weight in weights]
    log_z = float(sum(np.log(one.a[0]) for one in expansions))
    planes = np.array([one.slope[0] / one.a[0] for one in expansions])
    for directions in combinations(range(lattice.dimension), 3):
        faces = [plane[pair] for pair in combinations(directions, 2)]
        squares = np.array([expansions[p].u ** 2 for p in faces])
        log_z += cube * float(squares.prod())
        for number, p in enumerate(faces):
            others = float(np.delete(squares, number).prod())
            planes[p] += cube * 2 * expansions[p].u * expansions[p].u_slope * others
    return lattice.volume * log_z, planes
