"""Inputs of evaluation and inference: the trained flow, and configurations of a dataset."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_core.evaluation.trained import load_trained_task
from pipeline_core.fields import SPLITS
from pipeline_core.project.run import Run
from pipeline_core.task import Task
from pipeline_gauge_flows.data.ensembles.storage import Ensemble
from pipeline_gauge_flows.graph.layout import read_ensemble_options
from pipeline_gauge_flows.model.flow import Flow
from pipeline_gauge_flows.model.network import GaugeModule
from pipeline_gauge_flows.options import GaugeOptions


def load_flow(run: Run, device: torch.device) -> tuple[Task, Flow]:
    """Load the task of a run with trained weights, and its flow in double precision.

    Raises:
        ValueError: The model is missing, damaged, or of another run.
    """
    task = load_trained_task(run, device)
    assert isinstance(task.module, GaugeModule)
    return task, task.module.flow.double().requires_grad_(False)


def open_ensemble(run: Run) -> Ensemble | None:
    """Open the configurations of the dataset of a run; None if it has none."""
    if run.dataset is None:
        return None
    ensemble = Ensemble(run.data)
    if not len(ensemble):
        ensemble.close()
        return None
    return ensemble


def open_transfer(run: Run, flow: Flow, name: str, key: str) -> tuple[Ensemble, Flow]:
    """Open an ensemble that a flow was not trained on, and move the flow to its lattice.

    Args:
        run: The run of the flow.
        flow: A flow that starts from an ensemble.
        name: Name of the dataset.
        key: Option that names it, for messages.

    Raises:
        ValueError: It is the experiment's own, it holds no configurations, or none of the action
            from which the flow starts, or the flow does not act on it: by its group, its dimension
            or its masks.
    """
    own = read_ensemble_options(run)
    assert own is not None
    if run.dataset == run.further[name]:
        raise ValueError(
            f"{run.experiment}: {key}: {name!r} is the dataset of the experiment, part of which "
            "the flow was trained on; remove it"
        )
    ensemble = Ensemble(run.further[name].data)
    try:
        if len(ensemble) < 2:
            raise ValueError(
                f"{ensemble.path}: holds {len(ensemble)} configurations; name one that has some"
            )
        ensemble.require(ensemble.lattice, own.action)
        return ensemble, flow.move_to(ensemble.lattice)
    except ValueError as error:
        ensemble.close()
        raise ValueError(f"{run.experiment}: {key}: dataset {name!r}: {error}") from None


def list_unseen_splits(run: Run) -> list[str]:
    """Return the splits that were not used in the training of a run."""
    model = run.get_section("model", GaugeOptions)
    return [name for name in SPLITS if model.prior == "haar" or name != "train"]


def select_configurations(run: Run, ensemble: Ensemble, splits: Sequence[str]) -> NDArray[np.int64]:
    """Return the indices of the configurations in some splits.

    Args:
        run: The run, for messages.
        ensemble: The file.
        splits: Names of the splits.

    Raises:
        ValueError: There are none.
    """
    chosen = ensemble.select(*splits)
    if len(chosen) < 2:
        raise ValueError(
            f"{run.experiment}: {len(chosen)} configurations in {' and '.join(splits)} of its "
            "dataset; change `split` there"
        )
    return chosen
