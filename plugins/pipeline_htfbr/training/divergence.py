"""Search for the first non-finite step of a training, by repeating the steps since the last record.

A step reports no loss, to avoid synchronization with the device. Non-finite numbers are detected at
the next record; the same steps are then repeated from the same weights, and each is checked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from pipeline_core.distributed.ranks import Ranks
from pipeline_core.project.run import Run
from pipeline_core.training.divergence import Divergence, Seen, name_samples
from pipeline_htfbr.training.descent import Descent
from pipeline_htfbr.training.shares import Numbers, Plan, Steps

_NAMED: Final = 100
"""Number of points of a step that are named."""


def find_divergence(
    run: Run,
    descent: Descent,
    steps: Steps,
    plan: Plan,
    ranks: Ranks,
    weights: dict[str, Any],
    epochs: range,
) -> Divergence | None:
    """Return the first step with a non-finite loss or result; called on all ranks.

    Args:
        run: The run, for the names of its points.
        descent: Surface and optimizer; left in the state after the last step.
        steps: Steps of each epoch on this rank.
        plan: Indices of the points of each step.
        ranks: The ranks of the training.
        weights: State of `descent` before the first of the epochs.
        epochs: Epochs to repeat, counted from 0.

    Returns:
        The step and its points with the largest errors; None if all steps were finite.
    """
    descent.load_state_dict(weights)
    before: Seen | None = None
    for epoch in epochs:
        pairs = zip(steps(epoch), plan.plan_epoch(epoch), strict=True)
        for number, (step, share) in enumerate(pairs, 1):
            losses = descent.compute_losses(step.batches)
            total = ranks.all_reduce_sum(losses.sum())
            norm = descent.step(*step, with_norm=True)
            seen = Seen(float(total) / step.n_points, float(norm))
            is_finite = math.isfinite(seen.loss) and math.isfinite(seen.norm)
            if not (is_finite and descent.is_finite()):
                names = _name_points(run, plan, ranks, share.batches, losses)
                kind = f"the {len(names)} points of the step with the largest errors"
                return Divergence(epoch + 1, str(seen), number, before, names, kind)
            before = seen
        descent.rate.step(math.nan)
    return None


def _name_points(
    run: Run, plan: Plan, ranks: Ranks, own: Sequence[Numbers], losses: Tensor
) -> list[str]:
    """Return the points of a step by falling error before it; non-finite errors come first.

    Args:
        run: The run, for the names of its points.
        plan: Plan of the steps.
        ranks: The ranks, which share the points.
        own: Indices of the points of this rank.
        losses: Loss of each of these points.
    """
    none = np.zeros(0, np.int64)
    errors = losses.nan_to_num(nan=torch.inf, posinf=torch.inf).cpu().numpy()
    numbers, gathered = zip(*ranks.gather((np.concatenate([none, *own]), errors)), strict=True)
    every = np.concatenate(numbers)
    order = np.lexsort((every, -np.concatenate(gathered)))
    return name_samples(run, plan.n_points, every[order[:_NAMED]])
