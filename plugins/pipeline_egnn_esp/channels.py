"""Channels of natural and of unnatural parity."""

from __future__ import annotations

from dataclasses import dataclass


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
