"""Hooks of the plugin; torch is imported when a stage runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_core import hookimpl
from pipeline_core.hookspecs import Summary
from pipeline_core.model_info import ModelInfo
from pipeline_egnn_esp.data.datasets import MatrixDataset
from pipeline_egnn_esp.inference.options import ESPInferOptions
from pipeline_egnn_esp.options import (
    ESPEvaluateOptions,
    ESPGraphOptions,
    ESPOptions,
    ESPTrainOptions,
    check,
)

if TYPE_CHECKING:
    from pipeline_core.figures import Figure
    from pipeline_core.project.run import DatasetRun, Run
    from pipeline_core.task import Task


@hookimpl
def model() -> ModelInfo:
    """Describe eGNN-ESP."""
    return ModelInfo(
        name="egnn_esp",
        summary="Hamiltonians of density-functional theory by equivariant attention over edges.",
        citation="Kaniselvan et al., Distributed Equivariant Graph Neural Networks for Large-Scale "
        "Electronic Structure Prediction (2025)",
        options=ESPOptions,
        data_kind="matrix",
        predicts=("hamiltonian",),
        check=check,
        parts={
            "embedding": ("atom_embedding", "length_embedding"),
            "interactions": ("node_blocks", "edge_blocks", "surroundings"),
            "readout": ("heads",),
        },
        sections={
            "graph": ESPGraphOptions,
            "train": ESPTrainOptions,
            "evaluate": ESPEvaluateOptions,
            "infer": ESPInferOptions,
        },
        dataset=MatrixDataset,
        version=2,
        removed={
            "infer.memory_limit": None,
            "infer.structures.overlap": "dataset",
            "profile.scaling.link": None,
        },
    )


@hookimpl
def data(run: DatasetRun) -> Summary:
    """Read matrices of other programs."""
    from pipeline_egnn_esp.data.stage import make_data

    return make_data(run)


@hookimpl
def task(run: Run) -> Task:
    """Build the network for the basis of the data, and its training task."""
    from pipeline_egnn_esp.task import build_matrix_task

    return build_matrix_task(run)


@hookimpl
def evaluate(run: Run) -> Summary:
    """Compare elements and levels with the data, beside the two-centre baseline."""
    from pipeline_egnn_esp.evaluation.evaluate import evaluate_matrices

    return evaluate_matrices(run)


@hookimpl
def infer(run: Run) -> Summary:
    """Predict the matrices of structures, over ranks, and their levels, spectra and bands."""
    from pipeline_egnn_esp.inference.infer import infer_run

    return infer_run(run)


@hookimpl
def figures() -> list[Figure]:
    """Return the figures: errors by distance and by orbitals, and bands."""
    from pipeline_egnn_esp.figures import FIGURES

    return FIGURES
