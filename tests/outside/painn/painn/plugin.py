"""What pipeline-core learns of the model; torch and the model are imported inside the hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_atoms.config.graph import GraphOptions
from pipeline_core import hookimpl
from pipeline_core.config.limits import Width
from pipeline_core.config.sections import Count, Section
from pipeline_core.model_info import ModelInfo

if TYPE_CHECKING:
    from pipeline_core.project.run import Run
    from pipeline_core.task import Task

HOOKS_VERSION = "1.0"
"""Version of the hooks that the plugin is made for."""


class Options(Section):
    """The section `model` of an experiment; the defaults are those of the paper."""

    features: Width = 128
    """Scalars of an atom, and as many vectors."""
    layers: Count = 3
    """Messages between neighbours; after each of them, atoms mix their own features."""
    n_radial: Count = 20
    """Functions of the distance that filters are combined of."""


@hookimpl
def model() -> ModelInfo:
    """Describe PaiNN."""
    return ModelInfo(
        name="painn",
        summary="Message passing with scalars and vectors that turn with the structure.",
        citation="Schütt, Unke and Gastegger, ICML 2021, arXiv:2102.03150",
        options=Options,
        predicts=("energy", "forces", "stress"),
    )


@hookimpl
def task(run: Run) -> Task:
    """Build the network of a run; the engine trains, evaluates and uses it."""
    from pipeline_atoms.potential.task import build_potential_task

    from painn.network import PaiNN

    options = run.get_section("model", Options)
    cutoff = run.get_section("graph", GraphOptions).cutoff
    return build_potential_task(
        run, PaiNN(options.features, options.layers, options.n_radial, cutoff)
    )
