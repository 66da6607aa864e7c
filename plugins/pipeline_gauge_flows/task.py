"""Training task: flow, configurations, divergence, and metadata to rebuild the flow."""

from functools import partial
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_core.project.run import Run
from pipeline_core.task import Samples, Sizes, Task
from pipeline_core.training.precision import choose_dtype
from pipeline_gauge_flows.data.datasets import FermionOptions
from pipeline_gauge_flows.data.fermions.effective import EffectiveAction
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.graph.layout import FlowLayout, read_ensemble_options, read_layout
from pipeline_gauge_flows.model.network import ConditionalModule, GaugeModule, build_flow
from pipeline_gauge_flows.model.pseudofermion_flow import PseudofermionFlow
from pipeline_gauge_flows.options import GaugeOptions, GaugeTrainOptions
from pipeline_gauge_flows.training.objective import (
    Divergence,
    PseudofermionDivergence,
    estimate_log_z,
)
from pipeline_gauge_flows.training.samples import EnsembleSamples, HaarSamples, NoisySamples

_FEW: Final = 16
"""Configurations from which a rough log Z is estimated."""
_SHOTS: Final = 4
"""Pseudofermions per configuration in a step."""


def build_task(run: Run) -> Task:
    """Build the flow of a run and its training task.

    Raises:
        ValueError: No action is named, or the configurations of the dataset have another lattice
            or action than the flow requires.
    """
    options = run.get_section("model", GaugeOptions)
    structure = read_layout(run)
    if run.metadata is not None:
        # A trained flow keeps its plaquettes, independent of the rule for new ones.
        structure = structure.take_plaquettes(FlowLayout.from_dict(run.metadata["structure"]))
    target = make_target_action(run, structure.lattice)
    base = make_base_action(run, structure.lattice)
    return Task(
        module=_build_module(run, structure, (base, target)),
        objective=_make_objective(run, base, target),
        samples=partial(_make_samples, run, structure.lattice),
        cost=partial(_compute_cost, structure.lattice.n_links),
        metadata={
            "options": options.model_dump(mode="json"),
            "structure": structure.to_dict(),
            "action": target.options.model_dump(mode="json"),
        },
    )


def _build_module(
    run: Run, structure: FlowLayout, actions: tuple[EffectiveAction | None, EffectiveAction]
) -> GaugeModule:
    """Return the module of a run, with gradients enabled for the weights to be trained.

    Raises:
        ValueError: There are pseudofermions, but an action without quarks or no classes of sites.
    """
    options, train = (
        run.get_section("model", GaugeOptions),
        run.get_section("train", GaugeTrainOptions),
    )
    base, target = actions
    flow, by_path = build_flow(options.layers, structure, train.memory), train.gradient == "path"
    if options.pseudofermions is None:
        return GaugeModule(flow, base, by_path)
    quarks = _read_quarks(run, base, target)
    try:
        second = PseudofermionFlow(options.pseudofermions.n_layers, structure.lattice)
    except ValueError as error:
        raise ValueError(f"{run.experiment}: model.pseudofermions: {error}") from None
    alone = train.objective == "pseudofermions"
    flow.requires_grad_(not alone)
    second.requires_grad_(alone)
    return ConditionalModule(flow, second, quarks, base, by_path)


def _read_quarks(
    run: Run, base: EffectiveAction | None, target: EffectiveAction
) -> tuple[FermionOptions, FermionOptions]:
    """Return the quarks of the base and target actions of a flow.

    Raises:
        ValueError: An action has no quarks.
    """
    start = None if base is None else base.options.fermions
    end = target.options.fermions
    if start is None or end is None:
        raise ValueError(
            f"{run.experiment}: model.pseudofermions: the actions of the dataset and of the model "
            "must both have quarks; set `fermions` there, or remove the key"
        )
    return start, end


def _make_objective(
    run: Run, base: EffectiveAction | None, target: EffectiveAction
) -> Divergence | PseudofermionDivergence:
    if run.get_section("train", GaugeTrainOptions).objective == "pseudofermions":
        return PseudofermionDivergence()
    return Divergence(target, base, _estimate_log_z(run, target, base))


def _estimate_log_z(run: Run, target: EffectiveAction, base: EffectiveAction | None) -> float:
    """Return a rough log Z; for a flow from an ensemble the log of the ratio of both."""
    if base is None:
        return estimate_log_z(target)
    samples = EnsembleSamples(run, target.lattice, "train", torch.complex128)
    links = samples.batch(range(min(_FEW, len(samples))))["base_links"]
    return float((base(links) - target(links)).mean()) if len(links) else 0.0


def make_target_action(run: Run, lattice: Lattice) -> EffectiveAction:
    """Return the target action of the flow of a run.

    Raises:
        ValueError: Neither the experiment nor a dataset names one.
    """
    options, ensemble = run.get_section("model", GaugeOptions), read_ensemble_options(run)
    if options.action is not None:
        return EffectiveAction(options.action, lattice)
    if ensemble is None:
        raise ValueError(
            f"{run.experiment}: no action: set model.action, or name a dataset that has one"
        )
    return EffectiveAction(ensemble.action, lattice)


def make_base_action(run: Run, lattice: Lattice) -> EffectiveAction | None:
    """Return the base action of a flow; None for the Haar measure.

    Raises:
        ValueError: The flow starts from an ensemble, but the experiment names no dataset.
    """
    options, ensemble = run.get_section("model", GaugeOptions), read_ensemble_options(run)
    if options.prior == "haar":
        return None
    if ensemble is None:
        raise ValueError(
            f"{run.experiment}: model.prior 'ensemble' starts from configurations, but the "
            "experiment names no dataset; add the key `dataset`, or choose the prior 'haar'"
        )
    return EffectiveAction(ensemble.action, lattice)


def _make_samples(run: Run, lattice: Lattice, split: str) -> Samples:
    options = run.get_section("model", GaugeOptions)
    train = run.get_section("train", GaugeTrainOptions)
    dtype = choose_dtype(train.precision).to_complex()
    if options.prior == "haar":
        number = {"train": options.draws.train, "val": options.draws.val}.get(split, 0)
        return HaarSamples(lattice, number, run.seed, split, dtype)
    configurations = EnsembleSamples(run, lattice, split, dtype)
    if train.objective == "pseudofermions":
        return NoisySamples(configurations, lattice, _SHOTS, run.seed, split)
    return configurations


def _compute_cost(n_links: int, sizes: Sizes) -> NDArray[np.float64]:
    return np.full(len(sizes["sample"]), float(n_links))
