"""Zero-shot errors of initial weights before fine-tuning, and warnings that follow from them.

| symbol | what                                                        |
|--------|-------------------------------------------------------------|
| d      | prediction minus label, of an energy per atom               |
| m      | mean of d over held-out samples                             |
| s      | standard deviation of d, the scatter                        |

Energies of another level of theory, program or pseudopotential differ by a constant for each
element. If nothing else differs, |m| is many times s, and other energies of free atoms are the
cure; training would spend epochs on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import torch

from pipeline_core.batch import Batch
from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.task import Outputs, Quantity
from pipeline_core.training.residuals import compute_residuals

_SCATTERS: Final = 2.0
"""Ratio |m| / s above which a mean difference is reported."""
_LEAST: Final = 0.01
"""|m| in eV/atom below which it is not reported."""


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

    def list_warnings(self, options: TrainOptions, *, has_references: bool) -> Iterator[str]:
        """Yield each fault with its cure; all ranks call it, with the same result.

        Args:
            options: Options of the training.
            has_references: Whether the model has energies of free atoms.
        """
        sums = self._ranks.all_reduce_sum(self._sums.clone()).tolist()
        for quantity, row in zip(self._quantities, sums, strict=True):
            if not (row[0] and all(map(math.isfinite, row))):
                continue
            if quantity.name == "energy" and quantity.per_atom:
                yield from _explain_energies(row, options, has_references)
            elif quantity.name == "forces":
                yield from _explain_forces(row)


def _explain_energies(
    row: Sequence[float], options: TrainOptions, has_references: bool
) -> Iterator[str]:
    count, total, squares = row[:3]
    mean = total / count
    scatter = math.sqrt(max(0.0, squares / count - mean**2))
    if count < 2 or abs(mean) <= max(_SCATTERS * scatter, _LEAST):
        return
    if not has_references:
        cure = "compare the units and the zero of both energies"
    elif options.reference_energies == "model":
        cure = "set train.reference_energies: dataset"
    else:
        cure = "check `reference_energies` of the dataset file, and that its energies are in eV"
    yield (
        f"its energies differ from those of the dataset by {mean:+.3g} eV/atom, with a scatter of "
        f"{scatter:.2g}, as energies of another level of theory do: {cure}"
    )


def _explain_forces(row: Sequence[float]) -> Iterator[str]:
    count, _, _, error, label = row
    if error < label:
        return
    yield (
        f"its forces are no better than zero: their mean absolute error is {error / count:.3g} "
        f"eV/Å, the error of zero forces {label / count:.3g}; unless heads for forces start at "
        "random, compare units of the dataset, elements and cutoffs with those of the weights, or "
        "remove train.start_from"
    )
