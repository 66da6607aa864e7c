"""Pion observables for derivatives: correlators, masses and matrix elements."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from pipeline_gauge_flows.data.datasets import ActionOptions, FermionOptions, require_fermions
from pipeline_gauge_flows.data.fermions.correlators import correlate_pion
from pipeline_gauge_flows.data.fermions.sources import draw_sources
from pipeline_gauge_flows.data.lattice import Lattice, seed_generator
from pipeline_gauge_flows.evaluation.resampling import compute_value
from pipeline_gauge_flows.inference.derivative import DerivativeEstimates
from pipeline_gauge_flows.inference.masses import CORRELATOR, LogMass, MassFit
from pipeline_gauge_flows.inference.options import PionOptions

MASS: Final = f"{CORRELATOR}_mass"
"""Name of the mass, before `_<t_min>` for the range [t_min, T/2]."""
ELEMENT: Final = f"{CORRELATOR}_element"
"""Name of the matrix element of Eq. 15, likewise."""


@dataclass(frozen=True)
class PionCorrelator:
    """Pion correlator, with sources seeded by the number of a configuration.

    Sources and thus their noise are the same before and after a flow.

    Attributes:
        n_sources: Sources per configuration.
        quarks: Quarks of the pion.
        lattice: The lattice.
        seed: Seed of the sources.
    """

    n_sources: int
    quarks: FermionOptions
    lattice: Lattice
    seed: tuple[int, ...]

    def __call__(self, links: Tensor, numbers: Sequence[int]) -> dict[str, Tensor]:
        """Return the means of C(t) and C(T - t), (batch, T/2 + 1), of links (batch, D, V, N, N)."""
        generators = (seed_generator(*self.seed, int(number)) for number in numbers)
        sources = draw_sources(self.n_sources, self.lattice, generators)
        double = links.to(torch.complex128)
        whole = correlate_pion(double, self.lattice, self.quarks, sources)
        both = (whole + whole.flip(1).roll(1, 1)) / 2
        return {CORRELATOR: both[:, : whole.shape[1] // 2 + 1]}


def make_correlator(
    options: PionOptions, action: ActionOptions, lattice: Lattice, seed: tuple[int, ...]
) -> PionCorrelator:
    """Return the correlator of an experiment.

    Raises:
        ValueError: There are no quarks, or the lattice does not support them or is too short.
    """
    key = "infer.derivatives.pion"
    require_fermions(lattice.extents, key)
    quarks = options.quarks or action.fermions
    if quarks is None:
        raise ValueError(f"{key}.quarks: the action has no quarks for the pion; set kappa")
    middle = lattice.extents[0] // 2
    if middle < 2:
        raise ValueError(
            f"{key}: {lattice.extents[0]} sites in time leave no range to fit a mass in; choose a "
            "longer lattice"
        )
    return PionCorrelator(options.n_sources, quarks, lattice, seed)


def add_masses(estimates: DerivativeEstimates, lattice: Lattice) -> None:
    """Add masses and matrix elements of all ranges to estimates with a correlator."""
    middle = lattice.extents[0] // 2
    for t_min in range(1, middle):
        fit = make_fit(estimates, range(t_min, middle + 1), middle)
        estimates.functions[f"{MASS}_{t_min}"] = fit
        estimates.functions[f"{ELEMENT}_{t_min}"] = LogMass(f"{MASS}_{t_min}")


def make_fit(estimates: DerivativeEstimates, times: range, middle: int) -> MassFit:
    """Return the fit of a range, with the covariance of the means before the map.

    Raises:
        ValueError: There are too few configurations for the covariance.
    """
    names = [f"{CORRELATOR}_{t}" for t in times]
    n_blocks = int(estimates.blocks.max()) + 1
    if n_blocks <= 2 * len(names):
        raise ValueError(
            f"infer.derivatives.pion: {n_blocks} independent blocks of configurations have no "
            f"covariance matrix of {len(names)} slices; add configurations"
        )
    means = np.stack([estimates.average(name) for name in names], axis=1)
    return MassFit(times, middle, np.cov(means[1:].T))


def report_pion(
    correlator: PionCorrelator | None, estimates: DerivativeEstimates
) -> dict[str, Any] | None:
    """Return the report on the pion itself, JSON-able; None without it."""
    if correlator is None:
        return None
    middle = correlator.lattice.extents[0] // 2
    masses, effective = [], []
    for t in range(1, middle):
        fit = estimates.functions[f"{MASS}_{t}"]
        assert isinstance(fit, MassFit)
        means = np.array([estimates.average(name)[0] for name in fit.inputs])
        one = fit.fit(means)
        ends = {
            key: compute_value(estimates.average(f"{MASS}_{t}", weight)).to_dict()
            for key, weight in (("start", ""), ("end", "w "))
        }
        masses.append({"t_min": t, **ends, "chi_square": one.chi_square, "dof": one.dof})
    for t in range(middle):
        pair = make_fit(estimates, range(t, t + 2), middle)
        means = np.stack([estimates.average(name) for name in pair.inputs], axis=1)
        effective.append({"t": t, **compute_value(pair(means)).to_dict()})
    return {
        "quarks": correlator.quarks.model_dump(),
        "n_sources": correlator.n_sources,
        "t_min": max(1, middle // 2),
        "masses": masses,
        "effective_masses": effective,
    }
