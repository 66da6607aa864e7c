"""Stage `evaluate` of a trained flow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
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
from pipeline_gauge_flows.data.fermions.effective import make_action
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
from pipeline_gauge_flows.evaluation.predictions import write_predictions
from pipeline_gauge_flows.evaluation.report import (
    Bootstrap,
    Reference,
    compare_volumes,
    report_ensemble,
    report_haar,
)
from pipeline_gauge_flows.evaluation.resampling import Value, replace_not_finite
from pipeline_gauge_flows.evaluation.series import (
    END,
    Series,
    draw_series,
    map_back,
    map_ensemble,
    select_prefix,
    split_chains,
)
from pipeline_gauge_flows.evaluation.shots import NoiseShots, report_shots
from pipeline_gauge_flows.model.flow import Flow
from pipeline_gauge_flows.model.network import ConditionalModule
from pipeline_gauge_flows.model.pseudofermion_flow import PseudofermionFlow
from pipeline_gauge_flows.options import GaugeOptions
from pipeline_gauge_flows.task import make_base_action, read_quarks, read_target_action
from pipeline_gauge_flows.training.samples import HaarSamples


@dataclass(frozen=True)
class LatticeSeries:
    """Lattice, with the series of the flow on it, and of an ensemble if there is one."""

    lattice: Lattice
    series: Series
    reference: Reference


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
            content, parts = _evaluate_haar(run, flow, options, ensemble, ranks)
        else:
            assert ensemble is not None
            modules = (task.module, flow)
            content, parts = _evaluate_ensemble(run, modules, options, ensemble, ranks)
        if not ranks.is_rank_zero:
            return {}
        content = replace_not_finite(content)
        store.write_json(
            run.metrics,
            {**make_metrics_header(run, task), "flow": content, "headline": make_headline(content)},
        )
        write_predictions(run, [one.lattice for one in parts], _list_columns(parts))
        return _summarize(content)


def read_lattices(run: Run, flow: Flow, options: GaugeEvaluateOptions) -> list[Lattice]:
    """Return the lattices of an evaluation, the lattice of the training first.

    Raises:
        ValueError: The flow does not act on one of them.
    """
    lattices = [flow.lattice]
    for extents in options.lattices:
        try:
            lattice = Lattice(tuple(extents), flow.lattice.n_colours)
            flow.move_to(lattice)
        except ValueError as error:
            raise ValueError(f"{run.experiment}: evaluate.lattices: {error}") from None
        if lattice not in lattices:
            lattices.append(lattice)
    return lattices


def _evaluate_haar(
    run: Run, flow: Flow, options: GaugeEvaluateOptions, ensemble: Ensemble | None, ranks: Ranks
) -> tuple[dict[str, Any], list[LatticeSeries]]:
    """Evaluate a flow of the Haar measure; the content is complete on rank 0."""
    lattices = read_lattices(run, flow, options)
    parts = [
        _evaluate_lattice(run, flow.move_to(lattice), number, options, ensemble, ranks)
        for number, lattice in enumerate(lattices)
    ]
    if not ranks.is_rank_zero:
        return {}, parts
    reports = [
        report_haar(one.series, one.lattice, one.reference, _make_bootstrap(run, options, number))
        for number, one in enumerate(parts)
    ]
    return {
        **_describe_theory(run),
        "lattices": reports,
        "volume_law": compare_volumes(reports),
        "cost": _measure_costs(run, flow.lattice, options, parts[0], reports[0], ranks),
    }, parts


def _evaluate_lattice(
    run: Run,
    flow: Flow,
    number: int,
    options: GaugeEvaluateOptions,
    ensemble: Ensemble | None,
    ranks: Ranks,
) -> LatticeSeries:
    lattice = flow.lattice
    action = make_action(read_target_action(run), lattice)
    observables = Observables(options.observables, lattice)
    # Different configurations on each lattice.
    samples = HaarSamples(lattice, options.samples, run.seed, "test", torch.complex128, number)
    ours = draw_series(flow, action, samples, observables, options.batch_size, ranks)
    theory = compute_known(action)
    if ensemble is None or (ensemble.lattice, ensemble.action) != (lattice, action.options):
        return LatticeSeries(lattice, ours, Reference(theory))
    chosen = ensemble.select(*list_unseen_splits(run))
    if not len(chosen):
        return LatticeSeries(lattice, ours, Reference(theory))
    back = map_back(flow, action, (ensemble, chosen), observables, options.batch_size, ranks)
    return LatticeSeries(lattice, ours, Reference(theory, back, split_chains(ensemble, chosen)))


def _evaluate_ensemble(
    run: Run,
    modules: tuple[nn.Module, Flow],
    options: GaugeEvaluateOptions,
    ensemble: Ensemble,
    ranks: Ranks,
) -> tuple[dict[str, Any], list[LatticeSeries]]:
    """Evaluate a flow from an ensemble to another action; the content is complete on rank 0.

    Raises:
        ValueError: Further lattices are named that have no ensemble, or costs of drawing,
            or no configurations are left, or a further ensemble does not match the flow.
    """
    module, flow = modules
    _refuse_drawing(run, options)
    assert run.dataset is not None
    chosen = select_configurations(run, ensemble, list_unseen_splits(run))
    second = module.pseudofermions if isinstance(module, ConditionalModule) else None
    flows = (flow, second)
    made = [_map_configurations(run, flows, options, (ensemble, chosen), 0, ranks)]
    for number, name in enumerate(options.ensembles, 1):
        other, there = open_transfer(run, flow, name, "evaluate.ensembles")
        with other:
            pair = (other, np.arange(len(other)))
            flows = (there, second)
            made.append(_map_configurations(run, flows, options, pair, number, ranks))
    parts = [part for part, _ in made]
    if not ranks.is_rank_zero:
        return {}, parts
    names = [run.dataset.name, *options.ensembles]
    reports = [{"dataset": name, **one} for name, (_, one) in zip(names, made, strict=True)]
    base = make_base_action(run, flow.lattice)
    assert base is not None
    return {
        **_describe_theory(run),
        "start": base.options.model_dump(mode="json"),
        "lattices": reports,
        "volume_law": compare_volumes(reports),
        "cost": None,
    }, parts


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
    flows: tuple[Flow, PseudofermionFlow | None],
    options: GaugeEvaluateOptions,
    pair: tuple[Ensemble, NDArray[np.int64]],
    number: int,
    ranks: Ranks,
) -> tuple[LatticeSeries, dict[str, Any]]:
    """Map configurations of one ensemble; return their series, and on rank 0 the report."""
    flow, second = flows
    lattice = flow.lattice
    base, target = make_base_action(run, lattice), make_action(read_target_action(run), lattice)
    assert base is not None
    observables = Observables(options.observables, lattice)
    shots = None
    if second is not None:
        quarks, seed = read_quarks(run, base, target), (run.seed, SPLITS.index("test"), number)
        shots = NoiseShots(second, quarks, (base, target), options.shots, seed)
    series = map_ensemble(
        flow, (base, target), pair, observables, options.batch_size, ranks, shots=shots
    )
    own = {name: series[name] for name in ("log_weight", "log_weight_identity")}
    after = select_prefix(series, END)
    after.pop("gauge", None)
    own |= {"action": after.pop("target"), **after}
    part = LatticeSeries(lattice, own, Reference())
    if not ranks.is_rank_zero:
        return part, {}
    theory = (compute_known(base), compute_known(target))
    bootstrap, chains = _make_bootstrap(run, options, number), split_chains(*pair)
    report = report_ensemble(own, lattice, chains, theory, bootstrap)
    if shots is not None:
        draws = bootstrap.n_resamples, bootstrap.derive_seed(3)
        report["pseudofermions"] = report_shots(series, chains, *draws)
    return part, report


def _describe_theory(run: Run) -> dict[str, Any]:
    prior = run.get_section("model", GaugeOptions).prior
    return {"prior": prior, "action": read_target_action(run).model_dump(mode="json")}


def _make_bootstrap(run: Run, options: GaugeEvaluateOptions, number: int) -> Bootstrap:
    return Bootstrap(options.resamples, (run.seed, number))


def _measure_costs(
    run: Run,
    lattice: Lattice,
    options: GaugeEvaluateOptions,
    part: LatticeSeries,
    report: dict[str, Any],
    ranks: Ranks,
) -> dict[str, Any] | None:
    if options.cost is None:
        return None
    action = make_action(read_target_action(run), lattice)
    ess = report["ess"]["value"] if check_tail(report) else None
    tau = report["metropolis"]["tau_int"]
    return measure_costs(run, action, options.cost, part.series, ess, tau, ranks.device)


def _list_columns(parts: list[LatticeSeries]) -> Iterator[tuple[int, bool, Series]]:
    for number, one in enumerate(parts):
        yield number, False, one.series
        if one.reference.series is not None:
            yield number, True, one.reference.series


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
