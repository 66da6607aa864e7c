"""What is said of a flow on one lattice, from the series of its samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_gauge_flows.ensembles.statistics import ChainRows, Estimate
from pipeline_gauge_flows.evaluation.known import Known
from pipeline_gauge_flows.evaluation.metropolis import chain_of, describe_chain
from pipeline_gauge_flows.evaluation.pareto import largest_shape, tail_shape
from pipeline_gauge_flows.evaluation.resampling import Value, blocks_of, value_of
from pipeline_gauge_flows.evaluation.series import Series, observed
from pipeline_gauge_flows.evaluation.weights import OfTarget, Weighted
from pipeline_gauge_flows.lattice import Lattice

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Bootstrap:
    """How errors are found.

    Attributes:
        n_resamples: Of the bootstrap.
        seed: Of all random numbers of a report.
    """

    n_resamples: int
    seed: tuple[int, ...]

    def seed_of(self, use: int) -> tuple[int, ...]:
        """Return a seed of its own for each use of random numbers."""
        return (*self.seed, use)


@dataclass(frozen=True)
class Reference:
    """What a flow is compared with.

    Attributes:
        known: Values from theory; None for none.
        series: Of configurations of the target, mapped back by the flow; None for none.
        chains: Rows of each Markov chain among them.
    """

    known: Known | None = None
    series: Series | None = None
    chains: ChainRows = field(default_factory=ChainRows)


def from_haar(
    series: Series, lattice: Lattice, reference: Reference, bootstrap: Bootstrap
) -> dict[str, Any]:
    """Report on a flow of the Haar measure: the content of `lattices` in `run.metrics`.

    Args:
        series: Of its samples, see `series.drawn`.
        lattice: Where.
        reference: What it is compared with.
        bootstrap: For errors.
    """
    log_weight = series["log_weight"]
    values = {name: series[name] for name in observed(series)}
    weighted = Weighted(log_weight, values, bootstrap.n_resamples, bootstrap.seed_of(0))
    target = _of_target(reference, bootstrap)
    chain = describe_chain(chain_of(log_weight, bootstrap.seed_of(1)), values)
    averages = chain.pop("observables")
    plaquette = averages["plaquette"]
    return {
        **_header(series, lattice, weighted),
        **_partition_function(weighted, target, reference.known),
        "forward": None if target is None else _forward(target, reference),
        "metropolis": {
            **chain,
            "tau_int": plaquette["tau_int"],
            "tau_error": plaquette["tau_error"],
        },
        "observables": _compared(weighted, averages, lattice, reference),
    }


def from_ensemble(
    series: Series,
    lattice: Lattice,
    chains: ChainRows,
    known: tuple[Known | None, Known | None],
    bootstrap: Bootstrap,
) -> dict[str, Any]:
    """Report on a flow between two actions; log Z is that of the target less that of the start.

    Args:
        series: Of the configurations that it maps, see `series.pushed`; observables after the map.
        lattice: Where.
        chains: Rows of each Markov chain.
        known: What theory says of the start and of the target.
        bootstrap: For errors.
    """
    log_weight = series["log_weight"]
    values = {name: series[name] for name in observed(series)}
    blocks = blocks_of(chains, [log_weight, values["plaquette"]], len(log_weight))
    n, seed = bootstrap.n_resamples, bootstrap.seed_of(0)
    weighted = Weighted(log_weight, values, n, seed, blocks)
    identity = Weighted(series["log_weight_identity"], {}, n, seed, blocks)
    start, end = known
    ratio = _ratio(start, end)
    return {
        **_header(series, lattice, weighted),
        **_partition_function(weighted, None, ratio),
        "forward": None,
        "metropolis": None,
        "identity": {
            "ess": value_of(identity.ess).content(),
            "k_hat": tail_shape(series["log_weight_identity"]),
            "log_weight_variance": value_of(identity.variance).content(),
        },
        "observables": _compared(weighted, {}, lattice, Reference(end)),
    }


def volume_law(reports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compare ESS on each lattice with ESS(V) = ESS(V0)^(V/V0), V0 that of the first."""
    first = reports[0]
    found = []
    for report in reports:
        power = report["volume"] / first["volume"]
        ess, error = first["ess"]["value"], first["ess"]["error"]
        expected = Value(ess**power, power * ess ** (power - 1) * error)
        ours = Value(**report["ess"])
        found.append(
            {
                "extents": report["extents"],
                "volume": report["volume"],
                "ess": report["ess"],
                "expected": expected.content(),
                "sigmas": None if power == 1 else ours.sigmas(expected.value, expected.error),
            }
        )
    return found


def _header(series: Series, lattice: Lattice, weighted: Weighted) -> dict[str, Any]:
    n = len(series["log_weight"])
    return {
        "extents": list(lattice.extents),
        "n_colours": lattice.n_colours,
        "volume": lattice.volume,
        "n_samples": n,
        "ess": value_of(weighted.ess).content(),
        "k_hat": tail_shape(series["log_weight"]),
        "k_hat_limit": largest_shape(n),
        "log_weight_variance": value_of(weighted.variance).content(),
    }


def _of_target(reference: Reference, bootstrap: Bootstrap) -> OfTarget | None:
    if reference.series is None:
        return None
    log_weight, plaquette = (reference.series[name] for name in ("log_weight", "plaquette"))
    blocks = blocks_of(reference.chains, [log_weight, plaquette], len(log_weight))
    return OfTarget(log_weight, bootstrap.n_resamples, bootstrap.seed_of(2), blocks)


def _partition_function(
    weighted: Weighted, target: OfTarget | None, known: Known | None
) -> dict[str, Any]:
    """Return bounds and estimates of log Z, and both divergences."""
    above, place = (weighted.eubo, "reweighted") if target is None else (target.eubo, "ensemble")
    log_z: Floats | float = weighted.log_z if known is None else known.log_z
    return {
        "log_z": {
            "elbo": value_of(weighted.elbo).content(),
            "estimate": value_of(weighted.log_z).content(),
            "eubo": {**value_of(above).content(), "from": place},
            "known": None if known is None else known.log_z_content(),
            "sigmas": None
            if known is None
            else value_of(weighted.log_z).sigmas(known.log_z, known.log_z_uncertainty),
        },
        "kl": {
            "reverse": value_of(log_z - weighted.elbo).content(),
            "reverse_estimate": value_of(weighted.log_z - weighted.elbo).content(),
            "forward": {**value_of(above - log_z).content(), "from": place},
            "log_z": "estimate" if known is None else known.how,
        },
    }


def _forward(target: OfTarget, reference: Reference) -> dict[str, Any]:
    assert reference.series is not None
    return {
        "n_configurations": len(reference.series["log_weight"]),
        "ess": value_of(target.ess).content(),
        "log_z": value_of(target.log_z).content(),
    }


def _compared(
    weighted: Weighted, chain: Mapping[str, Any], lattice: Lattice, reference: Reference
) -> dict[str, Any]:
    """Return each observable by all means that there are."""
    known = reference.known.plaquettes(lattice) if reference.known else {}
    uncertainty = reference.known.plaquette_uncertainty if reference.known else 0.0
    found = {}
    for name in weighted.observables:
        ours, ensemble = value_of(weighted.mean(name)), _average(reference, name)
        theory = known.get(name)
        found[name] = {
            "flow": ours.content(),
            "chain": chain.get(name),
            "ensemble": None if ensemble is None else ensemble.content(),
            "known": None if theory is None else {"value": theory, "uncertainty": uncertainty},
            "sigmas": {
                "known": None if theory is None else ours.sigmas(theory, uncertainty),
                "ensemble": None
                if ensemble is None
                else ours.sigmas(ensemble.mean, ensemble.error),
            },
        }
    return found


def _average(reference: Reference, name: str) -> Estimate | None:
    if reference.series is None:
        return None
    return reference.chains.estimate(reference.series[name])


def _ratio(start: Known | None, end: Known | None) -> Known | None:
    if start is None or end is None:
        return None
    uncertainty = start.log_z_uncertainty + end.log_z_uncertainty
    return Known(end.how, end.log_z - start.log_z, end.planes, uncertainty)
