"""Hooks of the plugin; torch is imported when a model is built."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline_chgnet.options import CHGNetGraphOptions, CHGNetOptions, check
from pipeline_core import hookimpl
from pipeline_core.model_info import ModelInfo

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pipeline_core.project.run import Run
    from pipeline_core.task import Sizes, Task


@hookimpl
def model() -> ModelInfo:
    """Describe CHGNet."""
    return ModelInfo(
        name="chgnet",
        summary="Charge-informed graph network potential with angles and magnetic moments.",
        citation="Deng et al., Nat. Mach. Intell. 5, 1031 (2023), doi:10.1038/s42256-023-00716-3",
        options=CHGNetOptions,
        predicts=("energy", "forces", "stress", "magmoms"),
        check=check,
        sections={"graph": CHGNetGraphOptions},
        parts={
            "embedding": ("atom_embedding", "bond_embedding", "angle_embedding"),
            "basis": ("radial_basis", "short_radial_basis", "angular_basis"),
            "interactions": (
                *("atom_weights", "bond_weights"),
                *("atom_convolutions", "bond_convolutions", "angle_updates"),
            ),
            "readout": ("readout_norm", "readout", "further_readouts"),
            "magmom": ("magmom",),
            "heads": ("heads",),
        },
    )


@hookimpl
def task(run: Run) -> Task:
    """Build the network and its training task."""
    options = run.get_section("model", CHGNetOptions)
    graph = run.get_section("graph", CHGNetGraphOptions)
    from pipeline_atoms.potential.task import build_potential_task
    from pipeline_chgnet.model.network import CHGNet

    return replace(build_potential_task(run, CHGNet(options, graph)), cost=count_features)


def count_features(sizes: Sizes) -> NDArray[np.float64]:
    """Return the cost of each sample, (n_samples,): atoms + bonds + angles, an edge half a bond.

    This is the measure of load in FastCHGNet (section V C).
    """
    total: NDArray[np.float64] = sizes["atom"] + 0.5 * sizes["edge"] + sizes["angle"]
    return total
