"""Floating-point types of a training. Nothing here changes torch's default type."""

from contextlib import AbstractContextManager, nullcontext
from typing import Final

import torch

_AUTOCAST: Final = {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}


def choose_dtype(precision: str) -> torch.dtype:
    """Return the type of parameters, optimizer states and batches: float32 unless "64-true"."""
    return torch.float64 if precision == "64-true" else torch.float32


class Precision:
    """Mixed precision of a training step: autocast, and for float16 loss scaling.

    Args:
        precision: As in `train.precision`.
        device: Where the model computes.

    Attributes:
        scaler: Scales the loss; passes everything through unless the precision is "16-mixed".
    """

    def __init__(self, precision: str, device: torch.device) -> None:
        self._device, self._dtype = device.type, _AUTOCAST.get(precision)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "16-mixed")

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context of a forward pass."""
        if self._dtype is None:
            return nullcontext()
        return torch.autocast(self._device, dtype=self._dtype)
