"""Zero-shot errors of initial weights before fine-tuning."""

import math
from collections.abc import Sequence

import torch

from pipeline_core.batch import Batch
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.task import Outputs, Quantity, StartError
from pipeline_core.training.residuals import compute_residuals


class StartErrors:
    """Differences from the labels, summed up over batches and ranks.

    Args:
        quantities: Quantities to compare.
        ranks: Ranks that predict; each adds its own predictions.
    """

    def __init__(self, quantities: Sequence[Quantity], ranks: Ranks) -> None:
        self._quantities, self._ranks = tuple(quantities), ranks
        # Columns: count, d, d squared, |d|, |label|.
        self._sums = torch.zeros(len(self._quantities), 5, dtype=torch.float64, device=ranks.device)

    def add(self, outputs: Outputs, batch: Batch) -> None:
        """Add the predictions of a batch."""
        for number, quantity in enumerate(self._quantities):
            difference, present = compute_residuals(quantity, outputs, batch)
            nothing = {quantity.name: torch.zeros_like(outputs[quantity.name])}
            label, _ = compute_residuals(quantity, nothing, batch)
            d = difference.double()
            terms = (present, d, d.square(), d.abs(), label.double().abs())
            self._sums[number] += torch.stack([term.sum().double() for term in terms])

    def reduce(self) -> dict[str, StartError]:
        """Return the finite errors of quantities with labels, by name; all ranks call it."""
        sums = self._ranks.all_reduce_sum(self._sums.clone()).tolist()
        return {
            quantity.name: _average(*row)
            for quantity, row in zip(self._quantities, sums, strict=True)
            if row[0] and all(map(math.isfinite, row))
        }


def _average(count: float, d: float, squares: float, size: float, label: float) -> StartError:
    scatter = math.sqrt(max(0.0, squares / count - (d / count) ** 2))
    return StartError(round(count), d / count, scatter, size / count, label / count)
