"""Stage `evaluate` of a trained flow."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pipeline_core.artifacts import store
from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.evaluation.evaluate import make_metrics_header
from pipeline_core.fields import SPLITS
from pipeline_core.hookspecs import Summary
from pipeline_core.project.run import Run
from pipeline_core.training.out_of_memory import report_out_of_memory
from pipeline_gauge_flows.data.ensembles.storage import Ensemble
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.data.theory import compute_known
from pipeline_gauge_flows.evaluation.cost import measure_costs
from pipeline_gauge_flows.evaluation.headline import check_tail, make_headline
from pipeline_gauge_flows.evaluation.inputs import (
    list_unseen_splits,
    load_flow,
    open_ensemble,
    open_transfer,
    select_configurations,
)
from pipeline_gauge_flows.evaluation.observables import Observables
from pipeline_gauge_flows.evaluation.options import GaugeEvaluateOptions
from pipeline_gauge_flows.evaluation.predictions import LatticeSeries, write_predictions
from pipeline_gauge_flows.evaluation.report import (
    Reference,
    compare_volumes,
    report_ensemble,
    report_haar,
)
from pipeline_gauge_flows.evaluation.resampling import Value, replace_not_finite
from pipeline_gauge_flows.evaluation.series import (
    END,
    draw_series,
    map_back,
    map_ensemble,
    select_prefix,
    split_chains,
)
from pipeline_gauge_flows.evaluation.shots import NoiseShots, report_shots
from pipeline_gauge_flows.model.flow import Flow
from pipeline_gauge_flows.model.network import ConditionalModule
from pipeline_gauge_flows.options import GaugeOptions
from pipeline_gauge_flows.task import make_base_action, make_target_action
from pipeline_gauge_flows.training.samples import HaarSamples


def evaluate_flow(run: Run) -> Summary:
    """Sample a trained flow, compare it with theory and ensembles; write metrics and predictions.

    Called on every rank: they share the samples, rank 0 does the rest and returns the summary.

    Raises:
        ValueError: The model does not belong to the run, the flow does not act on a requested
            lattice, there are no configurations to map, a weight is not finite, or memory does not
            suffice.
    """
    options = run.get_section("evaluate", GaugeEvaluateOptions)
    model = run.get_section("model", GaugeOptions)
    if model.prior == "haar" and options.ensembles:
        raise ValueError(
            f"{run.experiment}: evaluate.ensembles: the flow starts from the Haar measure and "
            "draws its configurations itself; name their lattices in evaluate.lattices"
        )
    cure = f"lower evaluate.batch_size (now {options.batch_size})"
    if model.pseudofermions is not None:
        cure += f" or evaluate.shots (now {options.shots})"
    with (
        connect_ranks(run.device, run.state) as ranks,
        report_out_of_memory(lambda: f"in the evaluation of {run.experiment}; {cure}"),
        ExitStack() as stack,
    ):
        task, flow = load_flow(run, ranks.device)
        ensemble = open_ensemble(run)
        if ensemble is not None:
            stack.enter_context(ensemble)
        if model.prior == "haar":
            parts = [
                _draw_configurations(run, moved, number, options, ensemble, ranks)
                for number, moved in enumerate(move_flow(run, flow, options))
            ]
        else:
            assert ensemble is not None
            parts = _map_ensembles(run, (task.module, flow), options, ensemble, ranks)
        if not ranks.is_rank_zero:
            return {}
        content = replace_not_finite(_make_content(run, options, parts, ranks))
        store.write_json(
            run.metrics,
            {**make_metrics_header(run, task), "flow": content, "headline": make_headline(content)},
        )
        write_predictions(run, parts)
        return _summarize(content)


def move_flow(run: Run, flow: Flow, options: GaugeEvaluateOptions) -> list[Flow]:
    """Return the flow on the lattices of an evaluation, the lattice of the training first.

    Raises:
        ValueError: The flow does not act on one of them.
    """
    flows = {flow.lattice: flow}
    for extents in options.lattices:
        try:
            lattice = Lattice(tuple(extents), flow.lattice.n_colours)
            flows[lattice] = flow.move_to(lattice)
        except ValueError as error:
            raise ValueError(f"{run.experiment}: evaluate.lattices: {error}") from None
    return list(flows.values())


def _draw_configurations(
    run: Run,
    flow: Flow,
    number: int,
    options: GaugeEvaluateOptions,
    ensemble: Ensemble | None,
    ranks: Ranks,
) -> LatticeSeries:
    """Evaluate a flow of the Haar measure on its lattice."""
    lattice = flow.lattice
    action = make_target_action(run, lattice)
    observables = Observables(options.observables, lattice)
    # Different configurations on each lattice.
    samples = HaarSamples(lattice, options.samples, run.seed, "test", torch.complex128, number)
    ours = draw_series(flow, action, samples, observables, options.batch_size, ranks)
    reference = Reference(compute_known(action.gauge))
    if ensemble is not None and (ensemble.lattice, ensemble.action) == (lattice, action.options):
        pair = ensemble, ensemble.select(*list_unseen_splits(run))
        if len(pair[1]):
            back = map_back(flow, action, pair, observables, options.batch_size, ranks)
            reference = replace(reference, series=back, chains=split_chains(*pair))
    report: dict[str, Any] = {}
    if ranks.is_rank_zero:
        report = report_haar(ours, lattice, reference, options.resamples, (run.seed, number))
    return LatticeSeries(lattice, ours, reference.series, report)


def _map_ensembles(
    run: Run,
    modules: tuple[nn.Module, Flow],
    options: GaugeEvaluateOptions,
    ensemble: Ensemble,
    ranks: Ranks,
) -> list[LatticeSeries]:
    """Evaluate a flow from an ensemble to another action.

    Raises:
        ValueError: Further lattices are named that have no ensemble, or costs of drawing,
            or no configurations are left, or a further ensemble does not match the flow.
    """
    module, flow = modules
    _refuse_drawing(run, options)
    chosen = select_configurations(run, ensemble, list_unseen_splits(run))
    second = module if isinstance(module, ConditionalModule) else None
    parts = [_map_configurations(run, (flow, second), options, (ensemble, chosen), 0, ranks)]
    for number, name in enumerate(options.ensembles, 1):
        other, there = open_transfer(run, flow, name, "evaluate.ensembles")
        with other:
            pair, flows = (other, np.arange(len(other))), (there, second)
            parts.append(_map_configurations(run, flows, options, pair, number, ranks))
    return parts


def _make_content(
    run: Run, options: GaugeEvaluateOptions, parts: Sequence[LatticeSeries], ranks: Ranks
) -> dict[str, Any]:
    """Return `flow` of `run.metrics`."""
    lattice, reports = parts[0].lattice, [one.report for one in parts]
    base, target = make_base_action(run, lattice), make_target_action(run, lattice)
    prior = run.get_section("model", GaugeOptions).prior
    content = {"prior": prior, "action": target.options.model_dump(mode="json")}
    if base is not None:
        content["start"] = base.options.model_dump(mode="json")
    cost = None
    if base is None and options.cost is not None:
        first = reports[0]
        ess = first["ess"]["value"] if check_tail(first) else None
        drawn, tau = parts[0].series, first["metropolis"]["tau_int"]
        cost = measure_costs(run, target, options.cost, drawn, ess, tau, ranks.device)
    law = compare_volumes(reports)
    return {**content, "lattices": reports, "volume_law": law, "cost": cost}


def _refuse_drawing(run: Run, options: GaugeEvaluateOptions) -> None:
    """Refuse options that apply only to a flow that draws its configurations."""
    if options.lattices:
        raise ValueError(
            f"{run.experiment}: evaluate.lattices: the flow starts from an ensemble, which is of "
            "one lattice; remove the key, or name datasets of other lattices in evaluate.ensembles"
        )
    if options.cost is not None and "cost" in options.model_fields_set:
        raise ValueError(
            f"{run.experiment}: evaluate.cost: the flow starts from an ensemble and draws no "
            "configurations of its own; remove the key"
        )


def _map_configurations(
    run: Run,
    flows: tuple[Flow, ConditionalModule | None],
    options: GaugeEvaluateOptions,
    pair: tuple[Ensemble, NDArray[np.int64]],
    number: int,
    ranks: Ranks,
) -> LatticeSeries:
    """Map configurations of one ensemble."""
    flow, second = flows
    lattice = flow.lattice
    base, target = make_base_action(run, lattice), make_target_action(run, lattice)
    assert base is not None
    observables = Observables(options.observables, lattice)
    shots = None
    if second is not None:
        noise = run.seed, SPLITS.index("test"), number
        shots = NoiseShots(second, (base, target), options.shots, noise)
    series = map_ensemble(
        flow, (base, target), pair, observables, options.batch_size, ranks, shots=shots
    )
    own = {name: series[name] for name in ("log_weight", "log_weight_identity")}
    after = select_prefix(series, END)
    after.pop("gauge", None)
    own |= {"action": after.pop("target"), **after}
    if not ranks.is_rank_zero:
        return LatticeSeries(lattice, own, None, {})
    theory = (compute_known(base.gauge), compute_known(target.gauge))
    assert run.dataset is not None
    name = (run.dataset.name, *options.ensembles)[number]
    n, chains, seed = options.resamples, split_chains(*pair), (run.seed, number)
    report = report_ensemble(own, lattice, chains, theory, n, (*seed, 0))
    report = {"dataset": name, **report}
    if shots is not None:
        report["pseudofermions"] = report_shots(series, chains, n, (*seed, 3))
    return LatticeSeries(lattice, own, None, report)


def _summarize(content: dict[str, Any]) -> dict[str, Any]:
    first = content["lattices"][0]
    summary: dict[str, Any] = {"samples": first["n_samples"], "ESS": str(Value(**first["ess"]))}
    if first["forward"] is not None:
        summary["ESS_forward"] = str(Value(**first["forward"]["ess"]))
    summary["Pareto_k"] = first["k_hat"]
    summary["trusted"] = check_tail(first)
    summary["log_Z"] = str(Value(**first["log_z"]["estimate"]))
    if first["log_z"]["known"] is not None:
        summary["log_Z_known"] = first["log_z"]["known"]["value"]
    summary["KL"] = str(Value(**first["kl"]["reverse"]))
    if content["cost"] is not None:
        summary["cost_over_rival"] = content["cost"]["flow_over_rival"]
        summary["rival"] = content["cost"]["rival"]
    return summary
