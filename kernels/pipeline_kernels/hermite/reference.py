"""Splines in PyTorch, the oracle of the implementation in C."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pipeline_kernels.hermite.places import N_ROWS, Places


def interpolate(x: Tensor, table: Tensor, widths: Sequence[int]) -> list[Tensor]:
    """Calculate `op.interpolate`."""
    values, _ = _find_places(x, table).interpolate(table)
    return [part.contiguous() for part in values.split([*widths], dim=1)]


def differentiate(gradients: Sequence[Tensor], x: Tensor, table: Tensor) -> Tensor:
    """Calculate `op.differentiate_interpolation`."""
    _, slopes = _find_places(x, table).interpolate(table)
    return (torch.cat([*gradients], dim=1) * slopes).sum(1).to(x.dtype)


def _find_places(x: Tensor, table: Tensor) -> Places:
    first, factors, slopes = Places.of(x, len(table) // N_ROWS - 1)
    return Places(first, factors.to(table.dtype), slopes.to(table.dtype))
