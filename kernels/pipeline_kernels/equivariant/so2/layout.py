"""Layout of the components of features, by degree and by order."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise


@dataclass(frozen=True)
class Layout:
    """The components of degrees 0 to `lmax`, and which of them a convolution keeps.

    By degree (features of nodes and edges): row `l^2 + l + m` of `(lmax + 1)^2`. By order
    (features in the frame of an edge): m = 0 of all degrees, then for m = 1, ..., `mmax` the
    rows of order m by degree, from l = m to `lmax`, followed by order -m.

    Attributes:
        lmax: highest degree.
        mmax: highest order in the frame of an edge.

    Raises:
        ValueError: unless `0 <= mmax <= lmax`.
    """

    lmax: int
    mmax: int

    def __post_init__(self) -> None:
        if not 0 <= self.mmax <= self.lmax:
            raise ValueError(
                f"layout: expected 0 <= mmax <= lmax, got lmax = {self.lmax}, mmax = {self.mmax}"
            )

    @property
    def dim(self) -> int:
        """Number of rows by degree."""
        return (self.lmax + 1) ** 2

    @property
    def n_rows(self) -> int:
        """Number of rows by order."""
        return (2 * self.mmax + 1) * (self.lmax + 1) - self.mmax * (self.mmax + 1)

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Degree and order `(l, m)` of each row by order."""
        return tuple(
            (degree, order)
            for m in range(self.mmax + 1)
            for order in ([m, -m] if m else [0])
            for degree in range(m, self.lmax + 1)
        )

    @cached_property
    def sources(self) -> tuple[int, ...]:
        """Row by degree of each row by order."""
        return tuple(degree**2 + degree + order for degree, order in self.places)

    @cached_property
    def blocks(self) -> tuple[slice, ...]:
        """Rows by order of m = 0, of m = 1 and -1, of m = 2 and -2, ..."""
        starts = [0]
        for m in range(self.mmax + 1):
            starts.append(starts[-1] + self.count_degrees(m) * (2 if m else 1))
        return tuple(slice(*ends) for ends in pairwise(starts))

    def count_degrees(self, m: int) -> int:
        """Count the degrees that have the order m."""
        return self.lmax + 1 - m

    def list_weight_shapes(
        self, channels_in: int, channels_out: int, n_extra: int = 0
    ) -> list[tuple[int, ...]]:
        """Return the shapes of the weights of a linear layer, see `so2_linear`."""
        n = self.count_degrees
        shapes: list[tuple[int, ...]] = [(n(0) * channels_in, n(0) * channels_out + n_extra)]
        return shapes + [
            (2, n(m) * channels_in, n(m) * channels_out) for m in range(1, self.mmax + 1)
        ]
