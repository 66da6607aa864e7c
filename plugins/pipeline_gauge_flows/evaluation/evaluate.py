"""The stage `evaluate` of a trained flow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from pipeline_core import store
from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.evaluation.evaluate import metrics_header
from pipeline_core.run import Run
from pipeline_gauge_flows.actions import GaugeAction
from pipeline_gauge_flows.ensembles.stored import Ensemble
from pipeline_gauge_flows.evaluation.cost import cost_report
from pipeline_gauge_flows.evaluation.headline import make_headline, trusted
from pipeline_gauge_flows.evaluation.inputs import chosen_of, ensemble_for, trained, unseen
from pipeline_gauge_flows.evaluation.known import known
from pipeline_gauge_flows.evaluation.observables import Observables
from pipeline_gauge_flows.evaluation.options import GaugeEvaluateOptions
from pipeline_gauge_flows.evaluation.report import (
    Bootstrap,
    Reference,
    from_ensemble,
    from_haar,
    volume_law,
)
from pipeline_gauge_flows.evaluation.resampling import Value, finite
from pipeline_gauge_flows.evaluation.series import (
    END,
    Series,
    chains,
    drawn,
    mapped_back,
    part,
    pushed,
)
from pipeline_gauge_flows.evaluation.stored import write_predictions
from pipeline_gauge_flows.flow import Flow
from pipeline_gauge_flows.lattice import Lattice
from pipeline_gauge_flows.options import GaugeOptions
from pipeline_gauge_flows.samples import HaarSamples
from pipeline_gauge_flows.task import base_action, target_action


@dataclass(frozen=True)
class Part:
    """A lattice, with the series of the flow there, and of an ensemble if there is one."""

    lattice: Lattice
    drawn: Series
    reference: Reference


def evaluated(run: Run) -> dict[str, Any]:
    """Do the work of `evaluate_flow`; return its summary."""
    options = run.section("evaluate", GaugeEvaluateOptions)
    model = run.section("model", GaugeOptions)
    with connect_ranks(run.device, run.state) as ranks, ExitStack() as stack:
        task, flow = trained(run, ranks.device)
        ensemble = ensemble_for(run)
        if ensemble is not None:
            stack.enter_context(ensemble)
        if model.prior == "haar":
            content, parts = _haar(run, flow, options, ensemble, ranks)
        else:
            assert ensemble is not None
            content, parts = _between(run, flow, options, ensemble, ranks)
        if not ranks.is_rank_zero:
            return {}
        content = finite(content)
        store.write_json(
            run.metrics,
            {**metrics_header(run, task), "flow": content, "headline": make_headline(content)},
        )
        write_predictions(run, [one.lattice for one in parts], _columns(parts))
        return _summary(content)


def lattices_of(run: Run, flow: Flow, options: GaugeEvaluateOptions) -> list[Lattice]:
    """Return the lattices of an evaluation, that of the training first.

    Raises:
        ValueError: The flow does not act on one of them.
    """
    found = [flow.lattice]
    for extents in options.lattices:
        try:
            lattice = Lattice(tuple(extents), flow.lattice.n_colours)
            flow.on(lattice)
        except ValueError as error:
            raise ValueError(f"{run.experiment}: evaluate.lattices: {error}") from None
        if lattice not in found:
            found.append(lattice)
    return found


def _haar(
    run: Run, flow: Flow, options: GaugeEvaluateOptions, ensemble: Ensemble | None, ranks: Ranks
) -> tuple[dict[str, Any], list[Part]]:
    """Evaluate a flow of the Haar measure; the content is that of rank 0."""
    lattices = lattices_of(run, flow, options)
    parts = [
        _part(run, flow.on(lattice), number, options, ensemble, ranks)
        for number, lattice in enumerate(lattices)
    ]
    if not ranks.is_rank_zero:
        return {}, parts
    reports = [
        from_haar(one.drawn, one.lattice, one.reference, _bootstrap(run, options, number))
        for number, one in enumerate(parts)
    ]
    return {
        **_theory(run),
        "lattices": reports,
        "volume_law": volume_law(reports),
        "cost": _cost(run, flow.lattice, options, parts[0], reports[0], ranks),
    }, parts


def _part(
    run: Run,
    flow: Flow,
    number: int,
    options: GaugeEvaluateOptions,
    ensemble: Ensemble | None,
    ranks: Ranks,
) -> Part:
    lattice = flow.lattice
    action = GaugeAction(target_action(run), lattice)
    observables = Observables(options.observables, lattice)
    # Other configurations on each lattice.
    samples = HaarSamples(lattice, options.samples, run.seed, "test", torch.complex128, number)
    ours = drawn(flow, action, samples, observables, options.batch_size, ranks)
    theory = known(action)
    if ensemble is None or (ensemble.lattice, ensemble.action) != (lattice, action.options):
        if options.splits is not None and number == 0:
            raise ValueError(
                f"{run.experiment}: evaluate.splits: the dataset holds no configurations of the "
                "lattice and the action that the flow leads to; remove the key, or name another "
                "dataset"
            )
        return Part(lattice, ours, Reference(theory))
    chosen = ensemble.of(*(options.splits or unseen(run)))
    if options.splits is not None:
        chosen = chosen_of(run, ensemble, options.splits, "evaluate.splits")
    if not len(chosen):
        return Part(lattice, ours, Reference(theory))
    back = mapped_back(flow, action, (ensemble, chosen), observables, options.batch_size, ranks)
    return Part(lattice, ours, Reference(theory, back, chains(ensemble, chosen)))


def _between(
    run: Run, flow: Flow, options: GaugeEvaluateOptions, ensemble: Ensemble, ranks: Ranks
) -> tuple[dict[str, Any], list[Part]]:
    """Evaluate a flow from an ensemble to another action; the content is that of rank 0.

    Raises:
        ValueError: Further lattices are named, of which there is no ensemble, or costs of drawing,
            or no configurations are left.
    """
    lattice = flow.lattice
    if options.lattices:
        raise ValueError(
            f"{run.experiment}: evaluate.lattices: the flow starts from an ensemble, which is of "
            "one lattice; remove the key"
        )
    if options.cost is not None and "cost" in options.model_fields_set:
        raise ValueError(
            f"{run.experiment}: evaluate.cost: the flow starts from an ensemble and draws no "
            "configurations of its own; remove the key"
        )
    base, target = base_action(run, lattice), GaugeAction(target_action(run), lattice)
    assert base is not None
    chosen = chosen_of(run, ensemble, options.splits or unseen(run), "evaluate.splits")
    observables = Observables(options.observables, lattice)
    series = pushed(
        flow, (base, target), (ensemble, chosen), observables, options.batch_size, ranks
    )
    own = {name: series[name] for name in ("log_weight", "log_weight_identity")}
    after = part(series, END)
    own |= {"action": after.pop("target"), **after}
    parts = [Part(lattice, own, Reference())]
    if not ranks.is_rank_zero:
        return {}, parts
    pair = (known(base), known(target))
    bootstrap = _bootstrap(run, options, 0)
    report = from_ensemble(own, lattice, chains(ensemble, chosen), pair, bootstrap)
    start = base.options.model_dump(mode="json")
    return {
        **_theory(run),
        "start": start,
        "lattices": [report],
        "volume_law": volume_law([report]),
        "cost": None,
    }, parts


def _theory(run: Run) -> dict[str, Any]:
    prior = run.section("model", GaugeOptions).prior
    return {"prior": prior, "action": target_action(run).model_dump(mode="json")}


def _bootstrap(run: Run, options: GaugeEvaluateOptions, number: int) -> Bootstrap:
    return Bootstrap(options.resamples, (run.seed, number))


def _cost(
    run: Run,
    lattice: Lattice,
    options: GaugeEvaluateOptions,
    part: Part,
    report: dict[str, Any],
    ranks: Ranks,
) -> dict[str, Any] | None:
    if options.cost is None:
        return None
    action = GaugeAction(target_action(run), lattice)
    ess = report["ess"]["value"] if trusted(report) else None
    tau = report["metropolis"]["tau_int"]
    return cost_report(run, action, options.cost, part.drawn, ess, tau, ranks.device)


def _columns(parts: list[Part]) -> Iterator[tuple[int, bool, Series]]:
    for number, one in enumerate(parts):
        yield number, False, one.drawn
        if one.reference.series is not None:
            yield number, True, one.reference.series


def _summary(content: dict[str, Any]) -> dict[str, Any]:
    first = content["lattices"][0]
    found: dict[str, Any] = {"samples": first["n_samples"], "ESS": str(Value(**first["ess"]))}
    if first["forward"] is not None:
        found["ESS_forward"] = str(Value(**first["forward"]["ess"]))
    found["Pareto_k"] = first["k_hat"]
    found["trusted"] = trusted(first)
    found["log_Z"] = str(Value(**first["log_z"]["estimate"]))
    if first["log_z"]["known"] is not None:
        found["log_Z_known"] = first["log_z"]["known"]["value"]
    found["KL"] = str(Value(**first["kl"]["reverse"]))
    if content["cost"] is not None:
        found["cost_over_rival"] = content["cost"]["flow_over_rival"]
        found["rival"] = content["cost"]["rival"]
    return found
