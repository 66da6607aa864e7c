"""The hooks of the plugin; torch is imported when a stage runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline_core import hookimpl
from pipeline_core.config.renamed import RenamedOption
from pipeline_core.hookspecs import Summary
from pipeline_core.model_info import ModelInfo, Upgrade
from pipeline_egnn_esp.datasets import MatrixDataset
from pipeline_egnn_esp.inference.options import ESPInferOptions
from pipeline_egnn_esp.options import (
    ESPEvaluateOptions,
    ESPGraphOptions,
    ESPOptions,
    ESPTrainOptions,
    check,
)
from pipeline_egnn_esp.paper.studies.options import ESPProfileOptions

if TYPE_CHECKING:
    from pipeline_core.figures import Figure
    from pipeline_core.run import DatasetRun, Run
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
            "profile": ESPProfileOptions,
        },
        dataset=MatrixDataset,
        renamed=tuple(
            RenamedOption(f"infer.{study}", f"profile.{study}")
            for study in ("throughput", "partitions", "scaling")
        ),
        upgrades={1: Upgrade(weights=_name_embeddings, batch=_name_reverse_edges)},
    )


def _name_embeddings(weights: dict[str, Any]) -> dict[str, Any]:
    """Rename the first layers of atoms and of edges."""
    names = {
        "network.atoms.weight": "network.atom_embedding.weight",
        "network.lengths.weight": "network.length_embedding.weight",
    }
    return {names.get(name, name): tensor for name, tensor in weights.items()}


def _name_reverse_edges(batch: dict[str, Any]) -> dict[str, Any]:
    """Rename the field that numbers the reverse of each edge."""
    return {{"twin": "reverse_edge"}.get(name, name): rows for name, rows in batch.items()}


@hookimpl
def data(run: DatasetRun) -> Summary:
    """Read matrices of other programs."""
    from pipeline_egnn_esp.sources import make_data

    return make_data(run)


@hookimpl
def task(run: Run) -> Task:
    """Build the network for the basis of the data, and what its training needs."""
    from pipeline_egnn_esp.task import build_matrix_task

    return build_matrix_task(run)


@hookimpl
def evaluate(run: Run) -> Summary:
    """Compare elements and levels with the data, beside what distances alone predict."""
    from pipeline_egnn_esp.evaluation import evaluate_matrices

    return evaluate_matrices(run)


@hookimpl
def infer(run: Run) -> Summary:
    """Predict the matrices of structures, over ranks, and what follows from them."""
    from pipeline_egnn_esp.inference import infer_run

    return infer_run(run)


@hookimpl
def profile(run: Run) -> Summary:
    """Measure training steps, and do the studies of the paper."""
    from pipeline_egnn_esp.paper.studies import profile_run

    return profile_run(run)


@hookimpl
def figures() -> list[Figure]:
    """Give the figures of a model and those of the paper."""
    from pipeline_egnn_esp import figures
    from pipeline_egnn_esp.paper import catalogue

    return [*figures.FIGURES, *catalogue.FIGURES]
