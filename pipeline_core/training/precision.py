"""Floating-point types of a training. Nothing here changes torch's default type."""

from __future__ import annotations

import torch
from lightning_fabric.plugins import MixedPrecision, Precision


def parameter_dtype(precision: str) -> torch.dtype:
    """Return the type of parameters, optimizer states and batches: float32 unless "64-true"."""
    return torch.float64 if precision == "64-true" else torch.float32


def make_precision(precision: str, device: torch.device) -> Precision:
    """Return Fabric's plugin for a precision: autocast, and for float16 the scale of the loss.

    Double precision needs neither, and Fabric's own plugin for it would change torch's default type
    while the loader works in another thread.
    """
    if precision.endswith("mixed"):
        return MixedPrecision(precision, device.type)
    return Precision()
