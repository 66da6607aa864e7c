"""Channels of natural and of unnatural parity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_SHARE: Final = 4
"""One in this many channels is unnatural: a matrix has fewer unnatural irreps than natural ones."""


@dataclass(frozen=True)
class Channels:
    """Numbers of channels of each degree; natural ones come first.

    An inversion multiplies features of degree l and natural parity by (-1)^l, as it does harmonics;
    those of unnatural parity by -(-1)^l, as a cross product of vectors. Where parities are not
    distinguished all channels are called natural.

    Attributes:
        natural: Channels of natural parity.
        unnatural: Channels of unnatural parity.
    """

    natural: int
    unnatural: int = 0

    @property
    def total(self) -> int:
        """Number of all channels."""
        return self.natural + self.unnatural

    def repeat(self, n: int) -> Channels:
        """Return n times as many channels of each parity."""
        return Channels(n * self.natural, n * self.unnatural)


def split_channels(total: int, *, parity: bool) -> Channels:
    """Split a number of channels; a part is unnatural if parities are distinguished."""
    unnatural = max(1, total // _SHARE) if parity else 0
    return Channels(total - unnatural, unnatural)
