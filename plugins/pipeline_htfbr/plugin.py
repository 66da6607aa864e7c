"""Hooks of the plugin; torch is imported when a stage runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_core import hookimpl
from pipeline_core.hookspecs import Summary
from pipeline_core.model_info import ModelInfo
from pipeline_htfbr.data.datasets import PointDataset
from pipeline_htfbr.options import (
    REMOVED,
    HTEvaluateOptions,
    HTGraphOptions,
    HTInferOptions,
    HTOptions,
    HTTrainOptions,
)
from pipeline_htfbr.training.refusals import check

if TYPE_CHECKING:
    from ase.calculators.calculator import Calculator

    from pipeline_core.figures import Figure
    from pipeline_core.project.run import DatasetRun, Run
    from pipeline_core.task import Task


@hookimpl
def model() -> ModelInfo:
    """Describe HT-FBR."""
    return ModelInfo(
        name="htfbr",
        summary="Potential energy surfaces as hierarchical Tucker trees of basis functions.",
        citation="Qiu, Magoulès and Peláez, Civil-Comp Conferences 12, 2.4 (2025), "
        "doi:10.4203/ccc.12.2.4",
        options=HTOptions,
        data_kind="point",
        predicts=("energy", "gradient"),
        check=check,
        sections={
            "graph": HTGraphOptions,
            "train": HTTrainOptions,
            "evaluate": HTEvaluateOptions,
            "infer": HTInferOptions,
        },
        dataset=PointDataset,
        removed=REMOVED,
    )


@hookimpl
def data(run: DatasetRun) -> Summary:
    """Generate or read points of a surface."""
    from pipeline_htfbr.data.stage import make_points

    return make_points(run)


@hookimpl
def graph(run: Run) -> Summary:
    """Write the tree, its leaves and the tables of their functions."""
    from pipeline_htfbr.graph.build import write_structure

    return write_structure(run)


@hookimpl
def task(run: Run) -> Task:
    """Build the training task of the surface."""
    from pipeline_htfbr.model import make_task

    return make_task(run)


@hookimpl
def train(run: Run) -> Summary | None:
    """Fit the surface by the method of the experiment, which may be the shared trainer."""
    from pipeline_htfbr.training import train_surface

    return train_surface(run)


@hookimpl
def evaluate(run: Run) -> Summary:
    """Compare with the points and, where there is one, with the exact surface."""
    from pipeline_htfbr.evaluation.evaluate import evaluate_surface

    return evaluate_surface(run)


@hookimpl
def infer(run: Run) -> Summary:
    """Cut the surface, search its stationary points, export it as a sum of products."""
    from pipeline_htfbr.inference.use import use_surface

    return use_surface(run)


@hookimpl
def figures() -> list[Figure]:
    """Return the figures of fits."""
    from pipeline_htfbr.figures import FIGURES

    return FIGURES


@hookimpl
def calculator(run: Run, device: str) -> Calculator:
    """Return the surface of a molecule as an ASE calculator."""
    from pipeline_htfbr.inference.calculator import make_calculator

    return make_calculator(run, device)
