"""Hooks of the plugin; torch is imported when a model is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline_core import hookimpl
from pipeline_core.model_info import ModelInfo
from pipeline_mace.conversion.files import MACE_TORCH
from pipeline_mace.options import MACEGraphOptions, MACEOptions, check

if TYPE_CHECKING:
    from pipeline_core.project.run import Run
    from pipeline_core.task import Task


@hookimpl
def model() -> ModelInfo:
    """Describe MACE."""
    return ModelInfo(
        name="mace",
        summary="Equivariant message passing with products of many neighbours.",
        citation="Batatia et al., NeurIPS 2022, arXiv:2206.07697",
        options=MACEOptions,
        predicts=("energy", "forces", "stress"),
        check=check,
        sections={"graph": MACEGraphOptions},
        parts={
            "embedding": ("embedding",),
            "interactions": ("interactions",),
            "products": ("products",),
            "readout": ("readouts",),
        },
        foreign=(MACE_TORCH,),
    )


@hookimpl
def task(run: Run) -> Task:
    """Build the network for the elements of the data, and its training task."""
    options = run.get_section("model", MACEOptions)
    from pipeline_mace.task import build_mace_task

    return build_mace_task(run, options)


@hookimpl
def profile(run: Run) -> dict[str, Any]:
    """Measure training steps, and count the coefficients that the fused product leaves out."""
    from pipeline_core.profiling.study import profile_run
    from pipeline_mace.model.sparsity import count_coefficients

    options = run.get_section("model", MACEOptions)
    return profile_run(run, {"coefficients": count_coefficients(options)})
