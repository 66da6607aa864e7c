"""Validation of training options, and warnings."""

import logging
from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel

from pipeline_core.config.profile import ProfileOptions
from pipeline_core.config.sections import PartitionOptions, TrainOptions
from pipeline_htfbr.options import HTOptions, HTTrainOptions

logger = logging.getLogger(__name__)

_OF_STEPS: Final = (
    "minutes",
    "epochs",
    "batch_size",
    "optimizer",
    "schedule",
    "clip_norm",
    "patience",
    "start_from",
    "record_every",
)
"""Options of gradient steps, which do not apply to the solver."""


def warn_if_underdetermined(n_points: int, n_parameters: int) -> str | None:
    """Warn on rank 0 that the points cannot determine the parameters.

    Args:
        n_points: Fitted numbers: one energy per point, and the gradient components if fitted.
        n_parameters: Number of trained parameters.

    Returns:
        The warning, for the summary of the stage; None if there are enough points.
    """
    if n_points >= n_parameters:
        return None
    warning = (
        f"{n_parameters} parameters are fitted to {n_points} numbers, so the points do not "
        "determine the surface; use more points, smaller ranks (model.rank) or lower degrees "
        "(graph.degree)"
    )
    logger.warning(warning)
    return warning


def check(sections: Mapping[str, BaseModel]) -> None:
    """Check that an experiment sets no option that its training method ignores.

    Raises:
        ValueError: It sets one.
    """
    names = ("model", "train", "partition", "profile")
    model, train, partition, profile = (sections[name] for name in names)
    assert isinstance(model, HTOptions)
    assert isinstance(train, HTTrainOptions)
    assert isinstance(partition, PartitionOptions)
    assert isinstance(profile, ProfileOptions)
    if profile.samples:
        raise ValueError("profile.samples: points have no sizes whose steps differ; remove it")
    _refuse_other_methods(model, train, partition)
    if train.method != "trainer":
        _refuse_trainer_options(train)


def _refuse_other_methods(
    model: HTOptions, options: HTTrainOptions, partition: PartitionOptions
) -> None:
    """Refuse options that apply only to other methods than the experiment's."""
    method, default = options.method, HTTrainOptions()
    problems = {
        "model.rank: only method 'solver' chooses ranks itself; give a number": (
            method != "solver" and model.rank == "adaptive"
        ),
        "model.leaf_rank: the solver passes on the functions of a leaf themselves; remove it": (
            method == "solver" and model.leaf_rank is not None
        ),
        "train.loss: its terms belong to method 'trainer'; remove them": (
            method != "trainer" and bool(options.loss)
        ),
        "train.gradient_weight: only methods 'solver' and 'resident' have it; remove it": (
            method not in ("solver", "resident") and options.gradient_weight > 0
        ),
        "partition.strategy: only method 'trainer' uses it; remove it": (
            method != "trainer" and partition.strategy != PartitionOptions().strategy
        ),
        "train.profile: only method 'trainer' times its steps; remove it": (
            method != "trainer" and options.profile
        ),
        **{
            f"train.{name}: the solver takes no gradient steps; remove it": (
                method == "solver" and getattr(options, name) != getattr(default, name)
            )
            for name in _OF_STEPS
        },
    }
    _refuse(method, problems)


def _refuse_trainer_options(options: HTTrainOptions) -> None:
    """Refuse options that only the shared trainer supports."""
    default = TrainOptions()
    problems = {
        f"train.precision: {options.precision}; choose 32-true or 64-true": (
            options.precision not in ("32-true", "64-true")
        ),
        "train.freeze: all parameters are trained; remove it": bool(options.freeze),
        "train.ema_decay: weights are not averaged; remove it": options.ema_decay is not None,
        "train.checkpoint_steps: states are saved every `record_every` epochs; remove it": (
            options.checkpoint_steps is not None
        ),
        "train.batch_by: all points cost the same; remove it": (
            options.batch_by != default.batch_by
        ),
        "train.schedule: plateau needs a validation after each epoch; set record_every to 1": (
            options.schedule.name == "plateau" and options.record_every > 1
        ),
    }
    _refuse(options.method, problems)


def _refuse(method: str, problems: dict[str, bool]) -> None:
    for problem, present in problems.items():
        if present:
            raise ValueError(f"{problem}, or choose another train.method than {method!r}")
