"""The training loss of models whose outputs have labels; others implement `task.Objective`."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from pipeline_core import units
from pipeline_core.batch import Batch
from pipeline_core.config.sections import LossTerm
from pipeline_core.task import Outputs, Quantity
from pipeline_core.training.residuals import compute_residuals, read_labels


class LabelObjective:
    """Weighted sum over fields of the mean of a function of prediction minus label.

    Each mean runs over all numbers of the field that have a label, such as components of forces.

    The functions of the residual r are:

    - mse: r²
    - mae: abs(r)
    - huber: r²/2 up to delta, then delta (abs(r) - delta/2), as Huber, Ann. Math. Statist. 35, 73
      (1964)

    Args:
        loss: Terms by field name, as in the experiment.
        quantities: Predictions of the model that have labels in the samples.
        head_weights: Weight of the residuals of each head's samples, by the number of the head;
            None where samples have no head or all count the same.

    Raises:
        ValueError: A term is for a field that is not among the quantities, or its unit is unknown.
    """

    def __init__(
        self,
        loss: Mapping[str, LossTerm],
        quantities: Sequence[Quantity],
        head_weights: Sequence[float] | None = None,
    ) -> None:
        self._head_weights = head_weights
        by_name = {quantity.name: quantity for quantity in quantities}
        for name in loss:
            if name not in by_name:
                raise ValueError(
                    f"train.loss.{name}: the model has no such prediction with a label, only "
                    f"{', '.join(by_name) or 'none'}; remove the term or correct its name"
                )
        self._terms = {
            name: (by_name[name], term, _find_unit(name, term)) for name, term in loss.items()
        }

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each term."""
        return {name: term.weight for name, (_, term, _) in self._terms.items()}

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Return the number of labelled values of each term in a batch."""
        return {
            name: (~read_labels(quantity, batch).isnan()).sum()
            for name, (quantity, _, _) in self._terms.items()
        }

    def sums(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """Return the sum of each term over the labelled numbers of a batch."""
        sums = {}
        for name, (quantity, term, unit) in self._terms.items():
            residual = compute_residuals(quantity, outputs, batch)[0] / unit
            penalty = _compute_penalty(term, residual)
            if self._head_weights is not None and "head" in batch:
                penalty = penalty * self._weigh_rows(quantity, batch, penalty)
            sums[name] = penalty.sum()
        return sums

    def _weigh_rows(self, quantity: Quantity, batch: Batch, rows: Tensor) -> Tensor:
        """Return the weight of the head of each row, (n_rows, 1, ...)."""
        weights = rows.new_tensor(self._head_weights)[batch["head"]]  # (n_samples,)
        kind = quantity.field.kind
        if kind != "sample":
            weights = weights[batch[f"{kind}_sample"]]
        return weights.view(-1, *[1] * (rows.ndim - 1))


def _find_unit(name: str, term: LossTerm) -> float:
    if term.unit is None:
        return 1.0
    if name not in units.DIMENSION:
        raise ValueError(
            f"train.loss.{name}.unit: the field has no units to choose from; remove the key"
        )
    try:
        return units.find_factor(units.DIMENSION[name], term.unit)
    except ValueError as error:
        raise ValueError(f"train.loss.{name}.unit: {error}") from None


def _compute_penalty(term: LossTerm, residual: Tensor) -> Tensor:
    if term.kind == "mse":
        return residual.square()
    if term.kind == "mae":
        return residual.abs()
    return functional.huber_loss(
        residual, torch.zeros_like(residual), reduction="none", delta=term.delta
    )
