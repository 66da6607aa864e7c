"""Derivatives from correlated ensembles: configurations of a dataset before and after a flow."""

from collections.abc import Mapping
from typing import Any, Final

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline_core.artifacts.extracts import BULK
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.project.run import DatasetRun, Run
from pipeline_gauge_flows.data.ensembles.statistics import ChainRows
from pipeline_gauge_flows.data.ensembles.storage import Ensemble
from pipeline_gauge_flows.data.fermions.effective import EffectiveAction
from pipeline_gauge_flows.data.theory import compute_known
from pipeline_gauge_flows.evaluation.inputs import (
    open_ensemble,
    open_transfer,
    select_configurations,
)
from pipeline_gauge_flows.evaluation.observables import Observables
from pipeline_gauge_flows.evaluation.options import ObservableOptions
from pipeline_gauge_flows.evaluation.resampling import Value, compute_value, replace_not_finite
from pipeline_gauge_flows.evaluation.series import (
    END,
    START,
    Series,
    map_ensemble,
    select_prefix,
    split_chains,
)
from pipeline_gauge_flows.evaluation.weights import FlowEstimates
from pipeline_gauge_flows.inference.derivative import (
    CONJUGATE,
    DerivativeEstimates,
    Step,
    compute_independent,
    find_step,
)
from pipeline_gauge_flows.inference.options import DerivativeOptions
from pipeline_gauge_flows.inference.pion import add_masses, make_correlator, report_pion
from pipeline_gauge_flows.inference.second import make_second
from pipeline_gauge_flows.model.flow import Flow
from pipeline_gauge_flows.options import GaugeOptions
from pipeline_gauge_flows.task import make_base_action, make_target_action

Averages = dict[str, Value]
Floats = NDArray[np.float64]

_SOURCES: Final = 1
"""Number of the seed for quark sources among the seeds of the run."""


def differentiate(
    run: Run, flow: Flow, options: DerivativeOptions, ranks: Ranks
) -> tuple[dict[str, Any], Series]:
    """Map the configurations of a run and estimate derivatives.

    Returns:
        On rank 0 the content of the attribute `report` of `run.inference`; and the series.

    Raises:
        ValueError: The flow starts from the Haar measure, its actions differ in more than one
            parameter, or there are no configurations.
    """
    dataset, ensemble, flow = _open_configurations(run, flow, options)
    with ensemble:
        lattice, chosen = flow.lattice, np.arange(len(ensemble))
        if options.ensemble is None:
            chosen = select_configurations(run, ensemble, ("val", "test"))
        base, target = make_base_action(run, lattice), make_target_action(run, lattice)
        assert base is not None
        step = find_step(base.options, target.options)
        pair = (ensemble, chosen)
        correlator = None
        if options.pion is not None:
            correlator = make_correlator(options.pion, base.options, lattice, (run.seed, _SOURCES))
        observables = Observables(ObservableOptions(), lattice, correlator)
        series = map_ensemble(flow, (base, target), pair, observables, options.batch_size, ranks)
        if not ranks.is_rank_zero:
            return {}, series
        rows, seed = split_chains(ensemble, chosen), (run.seed, 0)
        estimates = DerivativeEstimates(series, step, rows, options.resamples, seed)
        second = make_second(
            dataset, (base, target), step, ensemble, observables, len(chosen), options.batch_size
        )
    if correlator is not None:
        add_masses(estimates, lattice)
    report = {"dataset": dataset.name, **_make_header(series, step, estimates, options, seed)}
    first = _average(estimates, estimates.before, rows)
    other = None if second is None else _average(estimates, second.columns, second.chains)
    exact = _compute_known_differences(base, target, step)
    report["observables"] = {
        name: _report_observable(name, estimates, exact, (first, other), step)
        for name in estimates.names
    }
    report["pion"] = report_pion(correlator, estimates)
    terms = ("flow", "reweighting", "measurement")
    report["seconds"] = {name: float(series[f"seconds_{name}"].mean()) for name in terms}
    report["seconds"]["generation"] = None if second is None else second.seconds
    report["independent_configurations"] = None if second is None else 2 * len(chosen)
    return replace_not_finite(report), series


def _open_configurations(
    run: Run, flow: Flow, options: DerivativeOptions
) -> tuple[DatasetRun, Ensemble, Flow]:
    """Open the dataset that is mapped, and move the flow to its lattice."""
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
        data = group.create_dataset(name, data=series[name])
        data.attrs[BULK] = True
    for prefix, place in ((START, "start"), (END, "end")):
        group.create_group(place).attrs[BULK] = True
        for name, values in select_prefix(series, prefix).items():
            group.create_dataset(f"{place}/{name}", data=values)


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


def _average(
    estimates: DerivativeEstimates, columns: Mapping[str, Floats], chains: ChainRows
) -> Averages:
    """Return averages over Markov chains with their errors, and functions of them."""
    both = {**columns, **estimates.linearise(columns)}
    means = {name: chains.estimate(values) for name, values in both.items()}
    return {name: Value(one.mean, one.error) for name, one in means.items()}


def _compute_known_differences(
    base: EffectiveAction, target: EffectiveAction, step: Step
) -> dict[str, float]:
    """Return the expected differences by name, where theory predicts them."""
    ends = [compute_known(action.gauge) for action in (base, target)]
    if ends[0] is None or ends[1] is None:
        return {}
    start, end = (one.average_plaquettes(base.lattice) for one in ends if one is not None)
    # Only the Wilson action has theory values.
    slopes = (target.gauge.weights - base.gauge.weights).numpy() / step.length
    planes = ends[1].planes - ends[0].planes
    conjugate = -base.lattice.volume * float(slopes @ planes)
    return {
        CONJUGATE: conjugate / step.length,
        **{name: (end[name] - start[name]) / step.length for name in start},
    }
