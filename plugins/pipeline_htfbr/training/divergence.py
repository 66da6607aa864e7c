"""Which step of a training was not finite first: the steps since the last record, taken again.

A step says nothing of itself, so that nothing waits for the device. That something is not finite is
seen at the next record; the same steps from the same weights then lead there again, and each of
them is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from pipeline_core.distributed.ranks import Ranks
from pipeline_core.run import Run
from pipeline_core.training.divergence import Divergence, Seen, name_samples
from pipeline_htfbr.training.descent import Descent
from pipeline_htfbr.training.plan import Numbers, Plan, Steps

_NAMED: Final = 100
"""Points of a step that are named."""


def find_divergence(
    run: Run,
    descent: Descent,
    steps: Steps,
    plan: Plan,
    ranks: Ranks,
    weights: dict[str, Any],
    epochs: range,
) -> Divergence | None:
    """Return the first step whose loss or result is not finite; called on all ranks alike.

    Args:
        run: The run, whose data name the points.
        descent: Takes the steps; it is left where they end.
        steps: Those of each epoch, on this rank.
        plan: The numbers of their points.
        ranks: Who trains.
        weights: The state of `descent` before the first of the epochs.
        epochs: From 0.

    Returns:
        The step, with its points of the largest errors; None if all steps were finite.
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
    """Return the points of a step by falling error before it; one that is not finite comes first.

    Args:
        run: Names them.
        plan: How many there are.
        ranks: Each has a part of them.
        own: Those of this rank.
        losses: What each of them adds to the loss.
    """
    none = np.zeros(0, np.int64)
    known = losses.nan_to_num(nan=torch.inf, posinf=torch.inf).cpu().numpy()
    numbers, errors = zip(*ranks.gather((np.concatenate([none, *own]), known)), strict=True)
    every = np.concatenate(numbers)
    order = np.lexsort((every, -np.concatenate(errors)))
    return name_samples(run, plan.n_points, every[order[:_NAMED]])
