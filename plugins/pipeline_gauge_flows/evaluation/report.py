"""Report on a flow on one lattice, from the series of its samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_gauge_flows.data.ensembles.statistics import ChainRows
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.data.theory import KnownValues
from pipeline_gauge_flows.evaluation.metropolis import describe_chain, run_chain
from pipeline_gauge_flows.evaluation.pareto import compute_shape_limit, fit_tail_shape
from pipeline_gauge_flows.evaluation.resampling import Value, compute_value, make_blocks
from pipeline_gauge_flows.evaluation.series import Series, list_observables
from pipeline_gauge_flows.evaluation.weights import FlowEstimates, TargetEstimates

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reference:
    """Reference values for a flow.

    Attributes:
        known: Values from theory; None for none.
        series: Series of target configurations, mapped by the inverse flow; None for none.
        chains: Rows of each Markov chain in the series.
    """

    known: KnownValues | None = None
    series: Series | None = None
    chains: ChainRows = field(default_factory=ChainRows)


def report_haar(
    series: Series, lattice: Lattice, reference: Reference, n_resamples: int, seed: tuple[int, ...]
) -> dict[str, Any]:
    """Report on a flow of the Haar measure: the content of `lattices` in `run.metrics`.

    Args:
        series: Series of its samples, see `series.draw_series`.
        lattice: The lattice.
        reference: Reference values.
        n_resamples: Number of bootstrap resamples.
        seed: Seed of all random numbers of the report.
    """
    log_weight = series["log_weight"]
    values = {name: series[name] for name in list_observables(series)}
    weighted = FlowEstimates(log_weight, values, n_resamples, (*seed, 0))
    forward = _estimate_forward(reference, n_resamples, (*seed, 2))
    chain = describe_chain(run_chain(log_weight, (*seed, 1)), values)
    averages = chain.pop("observables")
    plaquette = averages["plaquette"]
    return {
        **_make_header(series, lattice, weighted),
        **_report_log_z(weighted, forward, reference.known),
        "forward": None if forward is None else _report_forward(forward, reference),
        "metropolis": {
            **chain,
            "tau_int": plaquette["tau_int"],
            "tau_error": plaquette["tau_error"],
        },
        "observables": _compare_observables(weighted, averages, lattice, reference),
    }


def report_ensemble(
    series: Series,
    lattice: Lattice,
    chains: ChainRows,
    known: tuple[KnownValues | None, KnownValues | None],
    n_resamples: int,
    seed: tuple[int, ...],
) -> dict[str, Any]:
    """Report on a flow between two actions; log Z is the target's minus the start's.

    Args:
        series: Series of the mapped configurations, see `series.map_ensemble`; observables after
            the map.
        lattice: The lattice.
        chains: Rows of each Markov chain.
        known: Theory values of the start and of the target.
        n_resamples: Number of bootstrap resamples.
        seed: Seed of the bootstrap.
    """
    log_weight = series["log_weight"]
    values = {name: series[name] for name in list_observables(series)}
    blocks = make_blocks(chains, [log_weight, values["plaquette"]], len(log_weight))
    weighted = FlowEstimates(log_weight, values, n_resamples, seed, blocks)
    identity = FlowEstimates(series["log_weight_identity"], {}, n_resamples, seed, blocks)
    start, end = known
    ratio = _subtract_known(start, end)
    return {
        **_make_header(series, lattice, weighted),
        **_report_log_z(weighted, None, ratio),
        "forward": None,
        "metropolis": None,
        "identity": {
            "ess": compute_value(identity.ess).to_dict(),
            "k_hat": fit_tail_shape(series["log_weight_identity"]),
            "log_weight_variance": compute_value(identity.variance).to_dict(),
        },
        "observables": _compare_observables(weighted, {}, lattice, Reference(end)),
    }


def compare_volumes(reports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compare ESS on each lattice with ESS(V) = ESS(V0)^(V/V0), V0 the first volume."""
    first = reports[0]
    entries = []
    for report in reports:
        power = report["volume"] / first["volume"]
        ess, error = first["ess"]["value"], first["ess"]["error"]
        expected = Value(ess**power, power * ess ** (power - 1) * error)
        ours = Value(**report["ess"])
        entries.append(
            {
                "extents": report["extents"],
                "volume": report["volume"],
                "ess": report["ess"],
                "expected": expected.to_dict(),
                "sigmas": None
                if report is first
                else ours.measure_distance(expected.value, expected.error),
            }
        )
    return entries


def _make_header(series: Series, lattice: Lattice, weighted: FlowEstimates) -> dict[str, Any]:
    n = len(series["log_weight"])
    return {
        "extents": list(lattice.extents),
        "n_colours": lattice.n_colours,
        "volume": lattice.volume,
        "n_samples": n,
        "ess": compute_value(weighted.ess).to_dict(),
        "k_hat": fit_tail_shape(series["log_weight"]),
        "k_hat_limit": compute_shape_limit(n),
        "log_weight_variance": compute_value(weighted.variance).to_dict(),
    }


def _estimate_forward(
    reference: Reference, n_resamples: int, seed: tuple[int, ...]
) -> TargetEstimates | None:
    if reference.series is None:
        return None
    log_weight, plaquette = (reference.series[name] for name in ("log_weight", "plaquette"))
    blocks = make_blocks(reference.chains, [log_weight, plaquette], len(log_weight))
    return TargetEstimates(log_weight, n_resamples, seed, blocks)


def _report_log_z(
    weighted: FlowEstimates, forward: TargetEstimates | None, theory: KnownValues | None
) -> dict[str, Any]:
    """Return bounds and estimates of log Z, and both divergences."""
    above, place = (weighted.eubo, "reweighted") if forward is None else (forward.eubo, "ensemble")
    log_z: Floats | float = weighted.log_z if theory is None else theory.log_z
    return {
        "log_z": {
            "elbo": compute_value(weighted.elbo).to_dict(),
            "estimate": compute_value(weighted.log_z).to_dict(),
            "eubo": {**compute_value(above).to_dict(), "from": place},
            "known": None if theory is None else theory.describe_log_z(),
            "sigmas": None
            if theory is None
            else compute_value(weighted.log_z).measure_distance(
                theory.log_z, theory.log_z_uncertainty
            ),
        },
        "kl": {
            "reverse": compute_value(log_z - weighted.elbo).to_dict(),
            "reverse_estimate": compute_value(weighted.log_z - weighted.elbo).to_dict(),
            "forward": {**compute_value(above - log_z).to_dict(), "from": place},
            "log_z": "estimate" if theory is None else theory.how,
        },
    }


def _report_forward(forward: TargetEstimates, reference: Reference) -> dict[str, Any]:
    assert reference.series is not None
    return {
        "n_configurations": len(reference.series["log_weight"]),
        "ess": compute_value(forward.ess).to_dict(),
        "log_z": compute_value(forward.log_z).to_dict(),
    }


def _compare_observables(
    weighted: FlowEstimates, chain: Mapping[str, Any], lattice: Lattice, reference: Reference
) -> dict[str, Any]:
    """Return each observable by all available methods."""
    plaquettes = reference.known.average_plaquettes(lattice) if reference.known else {}
    uncertainty = reference.known.plaquette_uncertainty if reference.known else 0.0
    report = {}
    for name, average in weighted.averages.items():
        ours, theory, ensemble = compute_value(average), plaquettes.get(name), None
        if reference.series is not None:
            ensemble = reference.chains.estimate(reference.series[name])
        report[name] = {
            "flow": ours.to_dict(),
            "chain": chain.get(name),
            "ensemble": None if ensemble is None else ensemble.to_dict(),
            "known": None if theory is None else {"value": theory, "uncertainty": uncertainty},
            "sigmas": {
                "known": None if theory is None else ours.measure_distance(theory, uncertainty),
                "ensemble": None
                if ensemble is None
                else ours.measure_distance(ensemble.mean, ensemble.error),
            },
        }
    return report


def _subtract_known(start: KnownValues | None, end: KnownValues | None) -> KnownValues | None:
    if start is None or end is None:
        return None
    uncertainty = start.log_z_uncertainty + end.log_z_uncertainty
    return KnownValues(end.how, end.log_z - start.log_z, end.planes, uncertainty)
