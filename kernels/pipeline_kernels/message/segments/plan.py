"""The plan of a sum over segments, made once per batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from pipeline_kernels.checks import check_tensor

Plans = tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]]
"""Indices, orders and offsets of several `Segments`, as an operator takes them."""


@dataclass(frozen=True, eq=False)
class Segments:
    """Segment of each element, and the list of elements of each segment.

    The list form (compressed rows) lets each segment be summed by one thread in a fixed order:
    segment `s` holds the elements `order[offsets[s]:offsets[s + 1]]`, ascending.

    Attributes:
        index: segment of each element, `(n_elements,)` int64.
        order: elements sorted by segment, `(n_elements,)` int64; `(0,)` where `index` is sorted
            already, since the elements are then in order as they stand.
        offsets: where each segment begins in that order, `(n_segments + 1,)` int64.
    """

    index: Tensor
    order: Tensor
    offsets: Tensor

    @classmethod
    def of(cls, index: Tensor, n_segments: int) -> Self:
        """Sort the elements by segment and check that every segment exists.

        Args:
            index: segment of each element, `(n_elements,)` int64, in any order.
            n_segments: number of segments, empty ones included.

        Returns:
            The plan, on the device of `index`.

        Raises:
            ValueError: if `index` is not a one-dimensional int64 tensor or leaves the range.
        """
        check_tensor("index", index, ("n_elements",), (torch.int64,))
        index = index.contiguous()
        if bool((index[1:] >= index[:-1]).all()):
            ascending, order = index, index.new_empty(0)
        else:
            ascending, order = torch.sort(index, stable=True)
        if len(index) and not 0 <= int(ascending[0]) <= int(ascending[-1]) < n_segments:
            raise ValueError(
                f"index: expected segments from 0 to n_segments - 1 = {n_segments - 1}, "
                f"got {int(ascending[0])} to {int(ascending[-1])}"
            )
        starts = torch.arange(n_segments + 1, device=index.device)
        return cls(index, order, torch.searchsorted(ascending, starts))

    @property
    def n_elements(self) -> int:
        """Number of elements."""
        return self.index.shape[0]

    @property
    def n_segments(self) -> int:
        """Number of segments, empty ones included."""
        return self.offsets.shape[0] - 1

    def check(self, name: str, n_elements: int, device: torch.device) -> None:
        """Refuse a plan of another number of elements, or on another device.

        Args:
            name: of the argument, for the message.
            n_elements: number of elements.
            device: where it must be.

        Raises:
            ValueError: if so.
        """
        if self.n_elements != n_elements or self.index.device != device:
            raise ValueError(
                f"{name}: expected {n_elements} elements on {device}, got {self.n_elements} on "
                f"{self.index.device}"
            )

    def to(self, device: torch.device | str) -> Self:
        """Return the same plan on another device."""
        return type(self)(self.index.to(device), self.order.to(device), self.offsets.to(device))
