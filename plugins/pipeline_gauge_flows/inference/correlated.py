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
from pipeline_core.run import DatasetRun, Run
from pipeline_gauge_flows.actions import WholeAction
from pipeline_gauge_flows.datasets import EnsembleDataset
from pipeline_gauge_flows.ensembles.origins import GeneratedEnsemble, Sample
from pipeline_gauge_flows.ensembles.statistics import Estimate, estimate
from pipeline_gauge_flows.ensembles.storage import Ensemble
from pipeline_gauge_flows.evaluation.inputs import (
    open_ensemble,
    open_transfer,
    select_configurations,
)
from pipeline_gauge_flows.evaluation.observables import Observables
from pipeline_gauge_flows.evaluation.resampling import Value, compute_value, replace_not_finite
from pipeline_gauge_flows.evaluation.series import (
    END,
    START,
    Series,
    list_observables,
    map_ensemble,
    split_chains,
)
from pipeline_gauge_flows.evaluation.theory import compute_known
from pipeline_gauge_flows.evaluation.weights import FlowEstimates
from pipeline_gauge_flows.fermions.effective import make_action
from pipeline_gauge_flows.flow import Flow
from pipeline_gauge_flows.inference.derivative import (
    CONJUGATE,
    DerivativeEstimates,
    Step,
    compute_independent,
    find_step,
)
from pipeline_gauge_flows.inference.options import DerivativeOptions
from pipeline_gauge_flows.options import GaugeOptions
from pipeline_gauge_flows.task import make_base_action, read_target_action

Averages = dict[str, Value]

_BATCH: Final = 64
"""Configurations of a second ensemble that are measured at a time."""
_SEED: Final = 1
"""Added to the seed of the dataset for a second ensemble."""


def differentiate(
    run: Run, flow: Flow, options: DerivativeOptions, ranks: Ranks
) -> tuple[dict[str, Any], Series]:
    """Map the configurations of a run and differentiate.

    Returns:
        On rank 0 what the attribute `report` of `run.inference` holds; and the series.

    Raises:
        ValueError: The flow starts from the Haar measure, its actions differ in more than one
            parameter, or there are no configurations.
    """
    dataset, ensemble, flow = _open_configurations(run, flow, options)
    with ensemble:
        lattice, chosen = flow.lattice, np.arange(len(ensemble))
        if options.ensemble is None:
            key = "infer.derivatives.splits"
            chosen = select_configurations(run, ensemble, options.splits, key)
        base, target = make_base_action(run, lattice), make_action(read_target_action(run), lattice)
        assert base is not None
        step = find_step(base.options, target.options)
        observables = Observables(options.observables, lattice)
        pair = (ensemble, chosen)
        clocks = [time.perf_counter()]
        series = map_ensemble(flow, (base, target), pair, observables, options.batch_size, ranks)
        clocks.append(time.perf_counter())
        if not ranks.is_rank_zero:
            return {}, series
        rows, seed = split_chains(ensemble, chosen), (run.seed, 0)
        estimates = DerivativeEstimates(
            series, step, rows, options.fractions, options.resamples, seed
        )
        clocks.append(time.perf_counter())
        second = _measure_second(dataset, options, (base, target), step, ensemble, len(chosen))
        clocks.append(time.perf_counter())
    report = {"dataset": dataset.name, **_make_header(series, step, estimates, options, seed)}
    first = _make_averages({name: rows.estimate(one) for name, one in estimates.before.items()})
    exact = _compute_known_differences(base, target, step)
    report["observables"] = {
        name: _report_observable(name, estimates, exact, (first, second), step)
        for name in estimates.before
    }
    report["seconds"] = {
        "mapped": ranks.size * (clocks[1] - clocks[0]) / len(chosen),
        "generated": None if second is None else (clocks[3] - clocks[2]) / len(chosen),
    }
    report["independent_configurations"] = None if second is None else 2 * len(chosen)
    return replace_not_finite(report), series


def _open_configurations(
    run: Run, flow: Flow, options: DerivativeOptions
) -> tuple[DatasetRun, Ensemble, Flow]:
    """Open the dataset that is mapped, and put the flow on its lattice."""
    if run.get_section("model", GaugeOptions).prior == "ensemble":
        if (name := options.ensemble) is not None:
            transfer = open_transfer(run, flow, name, "infer.derivatives.ensemble")
            return run.further[name], *transfer
        ensemble = open_ensemble(run)
        if run.dataset is not None and ensemble is not None:
            return run.dataset, ensemble, flow
    raise ValueError(
        f"{run.experiment}: infer.derivatives: the flow does not start from configurations of an "
        "ensemble; set model.prior to 'ensemble' with a dataset that has some"
    )


def write_derivatives(group: h5py.Group, series: Series) -> None:
    """Write the series of configurations: weights, and observables at both ends."""
    for name in ("log_weight", "log_weight_identity"):
        group.create_dataset(name, data=series[name], chunks=True, fletcher32=True)
    for prefix, place in ((START, "start"), (END, "end")):
        side = {k.removeprefix(prefix): v for k, v in series.items() if k.startswith(prefix)}
        for name, values in side.items():
            group.create_dataset(f"{place}/{name}", data=values, chunks=True, fletcher32=True)


def _make_header(
    series: Series,
    step: Step,
    estimates: DerivativeEstimates,
    options: DerivativeOptions,
    seed: tuple[int, ...],
) -> dict[str, Any]:
    weights = {}
    for name, key in (("flow", "log_weight"), ("identity", "log_weight_identity")):
        one = FlowEstimates(series[key], {}, options.resamples, seed, estimates.blocks)
        weights[name] = {"ess": compute_value(one.ess).to_dict()}
    return {
        "parameter": step.parameter,
        "start": step.start,
        "end": step.end,
        "n_configurations": len(series["log_weight"]),
        "n_blocks": int(estimates.blocks.max()) + 1,
        "weights": weights,
    }


def _report_observable(
    name: str,
    estimates: DerivativeEstimates,
    exact: Mapping[str, float],
    ensembles: tuple[Averages, Averages | None],
    step: Step,
) -> dict[str, Any]:
    """Return the report on one observable."""
    report = estimates.report(name)
    ours = compute_value(estimates.flow_derivative(name))
    report["known"] = exact.get(name)
    report["known_sigmas"] = None if name not in exact else ours.measure_distance(exact[name])
    first, second = ensembles
    report["independent"] = None
    if second is not None:
        two = compute_independent(first[name], second[name], step)
        ratio = two.error / ours.error if ours.error > 0 else None
        report["independent"] = two.to_dict()
        report["error_ratio"]["independent"] = ratio
    return report


def _make_averages(estimates: Mapping[str, Estimate]) -> Averages:
    """Return averages over Markov chains with their errors."""
    return {name: Value(one.mean, one.error) for name, one in estimates.items()}


def _compute_known_differences(
    base: WholeAction, target: WholeAction, step: Step
) -> dict[str, float]:
    """Return what the estimates should be, by name, as far as theory knows."""
    ends = [compute_known(action) for action in (base, target)]
    if ends[0] is None or ends[1] is None:
        return {}
    start, end = (one.average_plaquettes(base.lattice) for one in ends if one is not None)
    # Of the Wilson action, which alone is known.
    slopes = (target.gauge.weights - base.gauge.weights).numpy() / step.length
    planes = ends[1].planes - ends[0].planes
    conjugate = -base.lattice.volume * float(slopes @ planes)
    return {
        CONJUGATE: conjugate / step.length,
        **{name: (end[name] - start[name]) / step.length for name in start},
    }


def _measure_second(
    dataset: DatasetRun,
    options: DerivativeOptions,
    actions: tuple[WholeAction, WholeAction],
    step: Step,
    ensemble: Ensemble,
    n: int,
) -> Averages | None:
    """Return averages over a second ensemble, made as the dataset was; None without one."""
    assert isinstance(dataset.options, EnsembleDataset)
    made = dataset.options.generate
    if not options.independent or made is None:
        return None
    # As many as there are of the first, of each chain.
    count = -(-n // made.chains) * made.chains
    chain = made.model_copy(update={"seed": made.seed + _SEED, "n_configurations": count})
    base, target = actions
    observables = Observables(options.observables, ensemble.lattice)
    values: dict[str, list[list[float]]] = {}
    second = GeneratedEnsemble(target.options, target.lattice, chain)
    for batch in _split_batches(iter(second)):
        links = torch.from_numpy(np.stack([one.links for one in batch]))
        columns = {"base": base(links), "target": target(links), **observables(links)}
        columns[CONJUGATE] = (columns["target"] - columns["base"]) / step.length
        for name in [CONJUGATE, *list_observables({k: v.numpy() for k, v in columns.items()})]:
            rows = values.setdefault(name, [[] for _ in range(made.chains)])
            for one, value in zip(batch, columns[name].tolist(), strict=True):
                rows[one.chain].append(value)
    # As of the first, whose chains may be too short for an autocorrelation of their own.
    tau = split_chains(ensemble, np.arange(len(ensemble))).tau_int
    return _make_averages(
        {name: estimate([np.array(row) for row in rows], tau) for name, rows in values.items()}
    )


def _split_batches(drawn: Iterator[Sample]) -> Iterator[list[Sample]]:
    while batch := list(islice(drawn, _BATCH)):
        yield batch
