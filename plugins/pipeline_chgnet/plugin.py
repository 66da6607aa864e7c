"""The hooks of the plugin; torch is imported when a model is built."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline_chgnet.options import CHGNetGraphOptions, CHGNetOptions, check_cutoffs
from pipeline_core import hookimpl
from pipeline_core.config.sections import TrainOptions
from pipeline_core.model_info import ModelInfo

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pipeline_core.figures import Figure
    from pipeline_core.run import Run
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
        sections={"graph": CHGNetGraphOptions},
    )


@hookimpl
def task(run: Run) -> Task:
    """Build the network and what its training needs."""
    options = run.get_section("model", CHGNetOptions)
    check_cutoffs(options, run.get_section("graph", CHGNetGraphOptions))
    precision = run.get_section("train", TrainOptions).precision
    if options.heads == "none" and not precision.endswith("-true"):
        raise ValueError(
            f"train.precision is {precision!r}, but CHGNet differentiates its forces a second time "
            "and needs the full mantissa; set it to '32-true' or '64-true', or give the model "
            "heads (model.heads)"
        )
    from pipeline_chgnet.model import CHGNet
    from pipeline_core.atomistic import build_potential_task

    return replace(build_potential_task(run, CHGNet(options)), cost=count_features)


def count_features(sizes: Sizes) -> NDArray[np.float64]:
    """Return the cost of each sample, (n_samples,): atoms + bonds + angles, an edge half a bond.

    So FastCHGNet measures loads (section V C).
    """
    total: NDArray[np.float64] = sizes["atom"] + 0.5 * sizes["edge"] + sizes["angle"]
    return total


@hookimpl
def figures() -> list[Figure]:
    """Give the figures of FastCHGNet, arXiv:2412.20796."""
    from pipeline_chgnet.paper import FIGURES

    return FIGURES
