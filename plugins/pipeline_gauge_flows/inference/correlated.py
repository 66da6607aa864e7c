"""Derivatives from correlated ensembles: configurations of a dataset, before and after a flow."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import h5py
import numpy as np
import torch

from pipeline_core.distributed.ranks import Ranks
from pipeline_core.run import Run
from pipeline_gauge_flows.actions import GaugeAction
from pipeline_gauge_flows.datasets import EnsembleDataset
from pipeline_gauge_flows.ensembles.origins import Drawn, Generated
from pipeline_gauge_flows.ensembles.statistics import Estimate, estimate
from pipeline_gauge_flows.ensembles.stored import Ensemble
from pipeline_gauge_flows.evaluation.inputs import chosen_of, ensemble_for
from pipeline_gauge_flows.evaluation.known import known
from pipeline_gauge_flows.evaluation.observables import Observables
from pipeline_gauge_flows.evaluation.resampling import Value, finite, value_of
from pipeline_gauge_flows.evaluation.series import END, START, Series, chains, observed, pushed
from pipeline_gauge_flows.evaluation.weights import Weighted
from pipeline_gauge_flows.flow import Flow
from pipeline_gauge_flows.inference.derivative import (
    CONJUGATE,
    Correlated,
    Step,
    independent,
    step_between,
)
from pipeline_gauge_flows.inference.options import DerivativeOptions
from pipeline_gauge_flows.structure import ensemble_of
from pipeline_gauge_flows.task import base_action, target_action

Averages = dict[str, Value]

_BATCH: Final = 64
"""Configurations of a second ensemble that are measured at a time."""
_SEED: Final = 1
"""Added to the seed of the dataset for a second ensemble."""


def derivatives(
    run: Run, flow: Flow, options: DerivativeOptions, ranks: Ranks
) -> tuple[dict[str, Any], Series]:
    """Map the configurations of a run and differentiate.

    Returns:
        On rank 0 what the attribute `report` of `run.inference` holds; and the series.

    Raises:
        ValueError: The flow starts from the Haar measure, its actions differ in more than one
            parameter, or there are no configurations.
    """
    lattice = flow.lattice
    base, target = base_action(run, lattice), GaugeAction(target_action(run), lattice)
    ensemble = ensemble_for(run)
    if base is None or ensemble is None:
        raise ValueError(
            f"{run.experiment}: infer.derivatives: the flow does not start from configurations of "
            "an ensemble; set model.prior to 'ensemble' with a dataset that has some"
        )
    with ensemble:
        chosen = chosen_of(run, ensemble, options.splits, "infer.derivatives.splits")
        step = step_between(base.options, target.options)
        observables = Observables(options.observables, lattice)
        pair = (ensemble, chosen)
        clocks = [time.perf_counter()]
        series = pushed(flow, (base, target), pair, observables, options.batch_size, ranks)
        clocks.append(time.perf_counter())
        if not ranks.is_rank_zero:
            return {}, series
        rows, seed = chains(ensemble, chosen), (run.seed, 0)
        found = Correlated(series, step, rows, options.fractions, options.resamples, seed)
        clocks.append(time.perf_counter())
        second = _second(run, options, (base, target), step, ensemble, len(chosen))
        clocks.append(time.perf_counter())
    report = _header(series, step, found, options, seed)
    first = _averages({name: rows.estimate(one) for name, one in found.before.items()})
    exact = _known_differences(base, target, step)
    report["observables"] = {
        name: _observable(name, found, exact, (first, second), step) for name in found.before
    }
    report["seconds"] = {
        "mapped": ranks.size * (clocks[1] - clocks[0]) / len(chosen),
        "generated": None if second is None else (clocks[3] - clocks[2]) / len(chosen),
    }
    report["independent_configurations"] = None if second is None else 2 * len(chosen)
    return finite(report), series


def write_derivatives(group: h5py.Group, series: Series) -> None:
    """Write the series of configurations: weights, and observables at both ends."""
    for name in ("log_weight", "log_weight_identity"):
        group.create_dataset(name, data=series[name], chunks=True, fletcher32=True)
    for prefix, place in ((START, "start"), (END, "end")):
        side = {k.removeprefix(prefix): v for k, v in series.items() if k.startswith(prefix)}
        for name, values in side.items():
            group.create_dataset(f"{place}/{name}", data=values, chunks=True, fletcher32=True)


def _header(
    series: Series,
    step: Step,
    found: Correlated,
    options: DerivativeOptions,
    seed: tuple[int, ...],
) -> dict[str, Any]:
    weights = {}
    for name, key in (("flow", "log_weight"), ("identity", "log_weight_identity")):
        one = Weighted(series[key], {}, options.resamples, seed, found.blocks)
        weights[name] = {"ess": value_of(one.ess).content()}
    return {
        "parameter": step.parameter,
        "start": step.start,
        "end": step.end,
        "n_configurations": len(series["log_weight"]),
        "n_blocks": int(found.blocks.max()) + 1,
        "weights": weights,
    }


def _observable(
    name: str,
    found: Correlated,
    exact: Mapping[str, float],
    ensembles: tuple[Averages, Averages | None],
    step: Step,
) -> dict[str, Any]:
    """Return the report on one observable."""
    report = found.report(name)
    ours = value_of(found.flow(name))
    report["known"] = exact.get(name)
    report["known_sigmas"] = None if name not in exact else ours.sigmas(exact[name])
    first, second = ensembles
    report["independent"] = None
    if second is not None:
        two = independent(first[name], second[name], step)
        ratio = two.error / ours.error if ours.error > 0 else None
        report["independent"] = two.content()
        report["error_ratio"]["independent"] = ratio
    return report


def _averages(found: Mapping[str, Estimate]) -> Averages:
    """Return averages over Markov chains with their errors."""
    return {name: Value(one.mean, one.error) for name, one in found.items()}


def _known_differences(base: GaugeAction, target: GaugeAction, step: Step) -> dict[str, float]:
    """Return what the estimates should be, by name, as far as theory knows."""
    ends = [known(action) for action in (base, target)]
    if ends[0] is None or ends[1] is None:
        return {}
    start, end = (one.plaquettes(base.lattice) for one in ends if one is not None)
    # Of the Wilson action, which alone is known.
    slopes = (target.weights - base.weights).numpy() / step.length
    planes = ends[1].planes - ends[0].planes
    conjugate = -base.lattice.volume * float(slopes @ planes)
    return {
        CONJUGATE: conjugate / step.length,
        **{name: (end[name] - start[name]) / step.length for name in start},
    }


def _second(
    run: Run,
    options: DerivativeOptions,
    actions: tuple[GaugeAction, GaugeAction],
    step: Step,
    ensemble: Ensemble,
    n: int,
) -> Averages | None:
    """Return averages over a second ensemble, made as the dataset was; None if it is not wanted."""
    dataset = ensemble_of(run)
    assert isinstance(dataset, EnsembleDataset)
    made = dataset.generate
    if not options.independent or made is None:
        return None
    # As many as there are of the first, of each chain.
    count = -(-n // made.chains) * made.chains
    chain = made.model_copy(update={"seed": made.seed + _SEED, "n_configurations": count})
    base, target = actions
    observables = Observables(options.observables, ensemble.lattice)
    values: dict[str, list[list[float]]] = {}
    for batch in _batches(iter(Generated(target, chain))):
        links = torch.from_numpy(np.stack([one.links for one in batch]))
        found = {"base": base(links), "target": target(links), **observables(links)}
        found[CONJUGATE] = (found["target"] - found["base"]) / step.length
        for name in [CONJUGATE, *observed({k: v.numpy() for k, v in found.items()})]:
            rows = values.setdefault(name, [[] for _ in range(made.chains)])
            for one, value in zip(batch, found[name].tolist(), strict=True):
                rows[one.chain].append(value)
    # As of the first, whose chains may be too short for an autocorrelation of their own.
    tau = chains(ensemble, np.arange(len(ensemble))).tau_int
    return _averages(
        {name: estimate([np.array(row) for row in rows], tau) for name, rows in values.items()}
    )


def _batches(drawn: Iterator[Drawn]) -> Iterator[list[Drawn]]:
    while batch := list(islice(drawn, _BATCH)):
        yield batch
