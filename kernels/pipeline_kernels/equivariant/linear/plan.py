"""Plan of a linear map: its representations and their offsets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class LinearPlan:
    """Representations that come in; one of each degree goes out.

    Attributes:
        counts: how many of each degree from 0 come in, degree after degree, each with all its
            components.
        dim_in: components that come in; those behind are not used.

    Raises:
        ValueError: there are fewer components than the representations have.
    """

    counts: tuple[int, ...]
    dim_in: int

    def __post_init__(self) -> None:
        used = sum(n * (2 * degree + 1) for degree, n in enumerate(self.counts))
        if self.dim_in < used or min(self.counts, default=0) < 1:
            raise ValueError(
                f"counts: expected one or more of each degree, with at most {self.dim_in} "
                f"components as they come in, got {self.counts}, which have {used}"
            )

    @classmethod
    def of(cls, counts: Sequence[int]) -> Self:
        """Make the plan for which nothing more comes in."""
        return cls(tuple(counts), sum(n * (2 * degree + 1) for degree, n in enumerate(counts)))

    @property
    def dim_out(self) -> int:
        """Components that go out."""
        return len(self.counts) ** 2

    def encode(self) -> list[int]:
        """Return the plan as integers, as an operator takes it; `decode` is the inverse."""
        return [self.dim_in, *self.counts]

    @classmethod
    def decode(cls, code: Sequence[int]) -> Self:
        """Return the plan from the output of `encode`."""
        return cls(tuple(code[1:]), code[0])
