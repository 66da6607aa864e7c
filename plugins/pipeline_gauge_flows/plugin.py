"""Hooks of the plugin; torch is imported when a stage runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_core import hookimpl
from pipeline_core.hookspecs import Summary
from pipeline_core.model_info import ModelInfo
from pipeline_gauge_flows.data.datasets import EnsembleDataset
from pipeline_gauge_flows.evaluation.options import GaugeEvaluateOptions
from pipeline_gauge_flows.inference.options import GaugeInferOptions
from pipeline_gauge_flows.options import (
    REMOVED,
    GaugeGraphOptions,
    GaugeOptions,
    GaugeTrainOptions,
    check,
)

if TYPE_CHECKING:
    from pipeline_core.figures import Figure
    from pipeline_core.project.run import DatasetRun, Run
    from pipeline_core.task import Task


@hookimpl
def model() -> ModelInfo:
    """Describe gauge flows."""
    return ModelInfo(
        name="gauge_flows",
        summary="Normalizing flows for SU(N) lattice gauge theory with learned active loops.",
        citation="Abbott et al., Progress in Normalizing Flows for 4d Gauge Theories, PoS "
        "LATTICE2024, arXiv:2502.00263",
        options=GaugeOptions,
        data_kind="configuration",
        check=check,
        sections={
            "graph": GaugeGraphOptions,
            "train": GaugeTrainOptions,
            "evaluate": GaugeEvaluateOptions,
            "infer": GaugeInferOptions,
        },
        dataset=EnsembleDataset,
        version=2,
        removed=REMOVED,
    )


@hookimpl
def data(run: DatasetRun) -> Summary:
    """Generate or read an ensemble."""
    from pipeline_gauge_flows.data.stage import make_data

    return make_data(run)


@hookimpl
def graph(run: Run) -> Summary:
    """Write the lattice and the masks of all layers."""
    from pipeline_gauge_flows.graph.layout import write_layout

    return write_layout(run)


@hookimpl
def task(run: Run) -> Task:
    """Build the training task of the flow."""
    from pipeline_gauge_flows.task import build_task

    return build_task(run)


@hookimpl
def evaluate(run: Run) -> Summary:
    """Sample the flow; compare it with theory, ensembles and other algorithms."""
    from pipeline_gauge_flows.evaluation.evaluate import evaluate_flow

    return evaluate_flow(run)


@hookimpl
def infer(run: Run) -> Summary:
    """Write configurations; differentiate by parameters of the action."""
    from pipeline_gauge_flows.inference.infer import infer_flow

    return infer_flow(run)


@hookimpl
def figures() -> list[Figure]:
    """Return the figures of flows."""
    from pipeline_gauge_flows.figures import FIGURES

    return FIGURES
