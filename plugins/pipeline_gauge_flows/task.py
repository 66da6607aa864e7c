"""The task of training: flow, configurations, divergence, and what rebuilds the flow."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from pipeline_core.run import Run
from pipeline_core.task import Samples, Sizes, Task
from pipeline_core.training.precision import parameter_dtype
from pipeline_gauge_flows.actions import GaugeAction
from pipeline_gauge_flows.datasets import ActionOptions
from pipeline_gauge_flows.lattice import Lattice
from pipeline_gauge_flows.network import GaugeModule, build_flow
from pipeline_gauge_flows.objective import Divergence
from pipeline_gauge_flows.options import GaugeOptions, GaugeTrainOptions
from pipeline_gauge_flows.samples import EnsembleSamples, HaarSamples
from pipeline_gauge_flows.structure import ensemble_of, read_structure


def gauge_task(run: Run) -> Task:
    """Build the flow of a run and what its training needs.

    Raises:
        ValueError: No action is named, or the configurations of the dataset are of another lattice
            or action than the flow needs.
    """
    options, train = run.options, run.section("train", GaugeTrainOptions)
    assert isinstance(options, GaugeOptions)
    structure = read_structure(run)
    target = GaugeAction(target_action(run), structure.lattice)
    base = base_action(run, structure.lattice)
    flow = build_flow(options.layers, structure, train.memory)
    return Task(
        module=GaugeModule(flow, base, by_path=train.gradient == "path"),
        objective=Divergence(train.objective, target, base),
        samples=partial(_samples, run, structure.lattice),
        cost=partial(_cost, structure.lattice.n_links),
        metadata={
            "options": options.model_dump(mode="json"),
            "structure": structure.content(),
            "action": target.options.model_dump(mode="json"),
        },
    )


def target_action(run: Run) -> ActionOptions:
    """Return the action of the distribution that the flow of a run leads to.

    Raises:
        ValueError: Neither the experiment nor a dataset names one.
    """
    options, ensemble = run.options, ensemble_of(run)
    assert isinstance(options, GaugeOptions)
    if options.action is not None:
        return options.action
    if ensemble is None:
        raise ValueError(
            f"{run.experiment}: no action: set model.action, or name a dataset that has one"
        )
    return ensemble.action


def base_action(run: Run, lattice: Lattice) -> GaugeAction | None:
    """Return the action of the distribution that a flow starts from; None for the Haar measure.

    Raises:
        ValueError: It starts from an ensemble, but the experiment names no dataset.
    """
    options, ensemble = run.options, ensemble_of(run)
    assert isinstance(options, GaugeOptions)
    if options.prior == "haar":
        return None
    if ensemble is None:
        raise ValueError(
            f"{run.experiment}: model.prior 'ensemble' starts from configurations, but the "
            "experiment names no dataset; add the key `dataset`, or choose the prior 'haar'"
        )
    return GaugeAction(ensemble.action, lattice)


def _samples(run: Run, lattice: Lattice, split: str) -> Samples:
    options, train = run.options, run.section("train", GaugeTrainOptions)
    assert isinstance(options, GaugeOptions)
    dtype = parameter_dtype(train.precision).to_complex()
    if train.objective == "forward_kl":
        return EnsembleSamples(run, lattice, target_action(run), split, "target", dtype)
    if options.prior == "haar":
        number = {"train": options.draws.train, "val": options.draws.val}.get(split, 0)
        return HaarSamples(lattice, number, run.seed, split, dtype)
    return EnsembleSamples(run, lattice, None, split, "base", dtype)


def _cost(n_links: int, sizes: Sizes) -> NDArray[np.float64]:
    return np.full(len(sizes["sample"]), float(n_links))
