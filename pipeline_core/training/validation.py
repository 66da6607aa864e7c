"""Losses and errors on held-out samples, each sample once, reduced over all ranks."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from pipeline_core.batch import Batch
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.task import Outputs, Quantity, Task
from pipeline_core.training.history import compute_means
from pipeline_core.training.loader import sum_counts
from pipeline_core.training.micro_batches import MicroBatch
from pipeline_core.training.precision import Precision
from pipeline_core.training.residuals import compute_residuals


def validate(
    task: Task,
    module: nn.Module,
    pieces: Iterator[MicroBatch],
    ranks: Ranks,
    precision: Precision,
    look: Callable[[Outputs, Batch], None] | None = None,
) -> dict[str, Any]:
    """Evaluate a module without gradients.

    Args:
        task: Loss and quantities.
        module: The weights to evaluate; left in evaluation mode.
        pieces: Micro-batches of this rank.
        ranks: Ranks that share the work.
        precision: As in training.
        look: Called with predictions and labels of each micro-batch of this rank.

    Returns:
        `val`: loss and terms, None if no term has a label; and `mae`: mean absolute error of each
        quantity in the engine's units, as in `Quantity`; None where no sample has a label. The same
        on all ranks.
    """
    module.eval()
    weights, n_terms = task.objective.weights, len(task.objective.weights)
    totals = torch.zeros(2, n_terms + len(task.quantities), dtype=torch.float64)
    totals = totals.to(ranks.device)  # row 0: sums, row 1: counts
    with torch.no_grad():
        for loaded in pieces:
            piece = loaded.to(ranks.device)
            with precision.autocast():
                outputs = piece.predict(module)
            if look is not None:
                look(outputs, piece.batch)
            sums = task.objective.sums(outputs, piece.batch)
            totals[0, :n_terms] += torch.stack([sums[name].double() for name in weights])
            totals[1, :n_terms] += sum_counts(task.objective, [loaded]).to(ranks.device)
            for column, quantity in enumerate(task.quantities, n_terms):
                totals[:, column] += _sum_absolute_errors(quantity, outputs, piece.batch)
    sums_, counts = ranks.all_reduce_sum(totals).tolist()
    errors = zip(task.quantities, sums_[n_terms:], counts[n_terms:], strict=True)
    return {
        # A loss of no term would be zero, and the first epoch the best for ever.
        "val": compute_means(weights, sums_[:n_terms], counts[:n_terms])
        if any(counts[:n_terms])
        else None,
        "mae": {q.name: total / count if count else None for q, total, count in errors},
    }


def _sum_absolute_errors(quantity: Quantity, outputs: Outputs, batch: Batch) -> Tensor:
    """Return sum and count of the absolute errors, (2,)."""
    difference, present = compute_residuals(quantity, outputs, batch)
    return torch.stack([difference.abs().sum().double(), present.sum().double()])
