"""Gradients of all parameters in one flat tensor: one message adds them over ranks.

Why not DistributedDataParallel: its hooks wait for a gradient of every parameter in every backward
pass. A rank with an empty share has no backward pass, a model need not use all parameters, forces
differentiate twice, and a share may take several passes; each needs an exception of its own there.
One sum after the last pass is exact in all these cases. What is given up is the overlap of the sum
with the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from pipeline_core.distributed.ranks import Ranks


class FlatGradients:
    """The `.grad` of each trainable parameter as a view into one flat tensor per type.

    A parameter without influence has the gradient zero, not None, so that an optimizer treats it
    alike on any number of ranks.

    Args:
        parameters: Parameters; those that need no gradient are left out.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        trainable = [p for p in parameters if p.requires_grad]
        self._flat: list[Tensor] = []
        for dtype in dict.fromkeys(p.dtype for p in trainable):
            alike = [p for p in trainable if p.dtype == dtype]
            sizes = [p.numel() for p in alike]
            flat = torch.zeros(sum(sizes), dtype=dtype, device=alike[0].device)
            for parameter, part in zip(alike, torch.split(flat, sizes), strict=True):
                parameter.grad = part.view_as(parameter)
            self._flat.append(flat)

    def zero(self) -> None:
        """Set all gradients to zero."""
        for flat in self._flat:
            flat.zero_()

    def all_reduce_sum(self, ranks: Ranks) -> None:
        """Replace the gradients by their sums over ranks."""
        for flat in self._flat:
            ranks.all_reduce_sum(flat)

    def norm(self) -> Tensor:
        """Return the Euclidean norm of all gradients together, a float64 scalar on their device."""
        norms = [flat.norm(dtype=torch.float64) for flat in self._flat]
        total: Tensor = torch.stack(norms).norm()
        return total

    def clip(self, norm: Tensor, largest: float) -> None:
        """Scale the gradients, whose norm is `norm`, so that it does not exceed `largest`."""
        scale = (largest / norm).clamp(max=1.0)
        for flat in self._flat:
            flat.mul_(scale)
