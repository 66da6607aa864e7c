"""Gradients of data-parallel ranks: one flat tensor, all-reduced in a few messages.

Why not DistributedDataParallel: its hooks wait for a gradient of every parameter in every backward
pass. A rank with an empty share has no backward pass, a model need not use all parameters, forces
differentiate twice, and gradients are accumulated over several passes; each needs an exception of
its own there. Here ranks all-reduce buckets of the flat tensor in one fixed order: during the last
backward pass, as soon as it has finished a bucket, where that can be detected, and the rest after
it. This treats all these cases alike.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import torch
from torch import Tensor, nn

from pipeline_core.distributed.ranks import Ranks

BUCKET_BYTES: Final = 2**20
"""Size of a message: long beside its latency, short beside the backward pass of a network."""


class FlatGradients:
    """The `.grad` of each trainable parameter as a view into one flat tensor per type.

    A parameter without influence has the gradient zero, not None, so that an optimizer treats it
    alike on any number of ranks.

    Args:
        parameters: Parameters; frozen ones are left out.
        ranks: Ranks that add the gradients.
        bucket_bytes: Least size of all messages but the last of a type.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], ranks: Ranks, bucket_bytes: int = BUCKET_BYTES
    ) -> None:
        self._ranks = ranks
        trainable = [p for p in parameters if p.requires_grad]
        self._flat: list[Tensor] = []
        self._buckets: list[Tensor] = []
        self._members: list[int] = []  # parameters of each bucket
        self._missing: list[int] | None = None  # of these, with gradients to come; None: no overlap
        self._sums: list[Callable[[], object]] = []  # begun; a call waits for the end
        for dtype in dict.fromkeys(p.dtype for p in trainable):
            alike = [p for p in trainable if p.dtype == dtype]
            sizes = [p.numel() for p in alike]
            flat = torch.zeros(sum(sizes), dtype=dtype, device=alike[0].device)
            for parameter, part in zip(alike, torch.split(flat, sizes), strict=True):
                parameter.grad = part.view_as(parameter)
            self._flat.append(flat)
            for members in cut_buckets(sizes, bucket_bytes // flat.itemsize):
                self._add_bucket(flat, alike, members)

    def zero(self) -> None:
        """Set all gradients to zero."""
        for flat in self._flat:
            flat.zero_()

    def overlap_sums(self) -> None:
        """Start the all-reduce within the next backward pass, the last of the step.

        Only for a pass without collectives of its own: all ranks must start collectives in the
        same order.
        """
        self._missing = list(self._members)

    def all_reduce_sum(self) -> None:
        """Replace the gradients by their sums over ranks."""
        for bucket in self._buckets[len(self._sums) :]:
            self._sums.append(self._ranks.start_all_reduce_sum(bucket))
        for wait in self._sums:
            wait()
        self._sums, self._missing = [], None

    def compute_norm(self) -> Tensor:
        """Return the Euclidean norm of all gradients together, a float64 scalar on their device."""
        norms = [flat.norm(dtype=torch.float64) for flat in self._flat]
        total: Tensor = torch.stack(norms).norm()
        return total

    def clip(self, norm: Tensor, largest: float) -> None:
        """Scale the gradients, whose norm is `norm`, so that it does not exceed `largest`."""
        scale = (largest / norm).clamp(max=1.0)
        for flat in self._flat:
            flat.mul_(scale)

    def _add_bucket(self, flat: Tensor, parameters: list[nn.Parameter], members: range) -> None:
        number = len(self._buckets)
        start = sum(p.numel() for p in parameters[: members.start])
        size = sum(parameters[i].numel() for i in members)
        self._buckets.append(flat[start : start + size])
        self._members.append(len(members))
        if self._ranks.size > 1:
            for i in members:
                parameters[i].register_post_accumulate_grad_hook(lambda _: self._finish(number))

    def _finish(self, number: int) -> None:
        """Count a finished gradient; start the all-reduce of all buckets that are due."""
        if self._missing is None:
            return
        self._missing[number] -= 1
        while len(self._sums) < len(self._buckets) and self._missing[len(self._sums)] == 0:
            bucket = self._buckets[len(self._sums)]
            self._sums.append(self._ranks.start_all_reduce_sum(bucket))


def cut_buckets(sizes: list[int], least: int) -> Iterator[range]:
    """Yield the parameters of each bucket, from the last to the first.

    A backward pass finishes the gradients of the last layers first.

    Args:
        sizes: Numbers in each parameter, (n_parameters,).
        least: Least number of numbers in each bucket but the last.
    """
    end, numbers = len(sizes), 0
    for i in reversed(range(len(sizes))):
        numbers += sizes[i]
        if numbers >= least or i == 0:
            yield range(i, end)
            end, numbers = i, 0
