"""Prediction minus label: the one definition for training losses and evaluation metrics."""

import torch
from torch import Tensor

from pipeline_core.batch import Batch
from pipeline_core.task import Outputs, Quantity


def compute_residuals(quantity: Quantity, outputs: Outputs, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return prediction minus label of one quantity, and a mask of labelled values.

    Args:
        quantity: The quantity to compare.
        outputs: Predictions of the model for `batch`.
        batch: The samples with their labels; NaN marks a missing one.

    Returns:
        The residuals in the engine's unit (per atom if the quantity is), of the shape of the label,
            zero where the label is missing but connected to the prediction everywhere; and a mask
            of the same shape, true where there is a label.

    Raises:
        ValueError: The model does not predict the quantity, or predicts another shape.
    """
    name = quantity.name
    if name not in outputs:
        raise ValueError(
            f"the model does not predict {name!r}, only {', '.join(outputs) or 'none'}"
        )
    prediction, label = outputs[name], read_labels(quantity, batch)
    if prediction.shape != label.shape:
        raise ValueError(
            f"prediction of {name!r} has shape {tuple(prediction.shape)}, "
            f"its label {tuple(label.shape)}; the module must return the shape of the label"
        )
    present = ~label.isnan()
    difference = torch.where(present, prediction - label, 0)
    if quantity.per_atom:
        n_atoms = batch["atom_offsets"].diff()  # (n_samples,)
        difference = difference / n_atoms.view(-1, *[1] * (difference.ndim - 1))
    return difference, present


def read_labels(quantity: Quantity, batch: Batch) -> Tensor:
    """Return the labels of one quantity as they are, NaN where they are missing.

    Raises:
        ValueError: The samples do not carry this label.
    """
    if quantity.name not in batch:
        raise ValueError(
            f"the samples carry no label {quantity.name!r}, only {', '.join(sorted(batch))}; "
            "import the label or remove it from what is compared"
        )
    return batch[quantity.name]
