"""Plan of a channelwise tensor product: its paths, their coefficients and offsets."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from pipeline_kernels.equivariant.clebsch_gordan import Irrep
from pipeline_kernels.equivariant.couplings import compute_coefficients


@dataclass(frozen=True)
class Path:
    """Coupling path from a feature and a harmonic to a result.

    Attributes:
        source: which input feature, by its place among `irreps_in`.
        degrees: of the feature, of the harmonic, of the result.
        rows: where their components begin in `h`, in `Y` and in the result.
        irrep: of the result.
    """

    source: int
    degrees: tuple[int, int, int]
    rows: tuple[int, int, int]
    irrep: Irrep

    @property
    def dims(self) -> tuple[int, int, int]:
        """Numbers of components of the feature, of the harmonic, of the result."""
        l1, l2, l3 = self.degrees
        return 2 * l1 + 1, 2 * l2 + 1, 2 * l3 + 1

    def compute_coefficients(self) -> np.ndarray:
        """Return the coefficients `C[m1, m2, m3]`, with `sqrt(2 l3 + 1)`, as float64."""
        return compute_coefficients(self.degrees)


@dataclass(frozen=True)
class ProductPlan:
    """The products of features with spherical harmonics that give certain representations.

    The paths follow MACE: every input with every harmonic, whatever of the product is wanted,
    sorted by representation as e3nn sorts (degree, odd before even) and otherwise in that order.

    | array    | shape                          | rows                                           |
    |----------|--------------------------------|------------------------------------------------|
    | `h`      | `(n_nodes, dim_in, C)`         | components of the first input, of the next ... |
    | `Y`      | `(n_edges, dim_sh)`            | harmonics of degree 0, 1, ..., `lmax`          |
    | `w`      | `(n_edges, n_paths, C)`        | a weight for each path                         |
    | result   | `(n_nodes, dim_out, C)`        | components of the first path, of the next ...  |

    Attributes:
        irreps_in: representations of the features, each with all channels.
        lmax: highest degree of the harmonics; degree `l` has the parity `(-1)^l`.
        irreps_target: representations that are wanted.

    Raises:
        ValueError: no path leads to any of them.
    """

    irreps_in: tuple[Irrep, ...]
    lmax: int
    irreps_target: tuple[Irrep, ...]

    def __post_init__(self) -> None:
        if self.lmax < 0:
            raise ValueError(f"lmax: expected at least 0, got {self.lmax}")
        if not self.paths:
            raise ValueError(
                f"irreps_target: no product of {_join(self.irreps_in)} with harmonics up to "
                f"degree {self.lmax} gives {_join(self.irreps_target) or 'an empty list'}"
            )

    @classmethod
    def of(cls, irreps_in: str, lmax: int, irreps_target: str) -> Self:
        """Make the plan for representations in the notation of e3nn without multiplicities.

        Args:
            irreps_in: of the features, for instance `0e + 1o`.
            lmax: highest degree of the harmonics.
            irreps_target: of the results.

        Raises:
            ValueError: a representation cannot be read, or no path leads to any target.
        """
        both = (
            tuple(Irrep.parse(name) for name in names.split("+"))
            for names in (irreps_in, irreps_target)
        )
        return cls(next(both), lmax, next(both))

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """All paths, in the order of their results."""
        starts = np.cumsum([0, *(irrep.dim for irrep in self.irreps_in)]).tolist()
        ways = [
            (result, source, degree)
            for source, irrep in enumerate(self.irreps_in)
            for degree in range(self.lmax + 1)
            for result in irrep.multiply(Irrep(degree, (-1) ** degree))
            if result in self.irreps_target
        ]
        paths, row = [], 0
        for result, source, degree in sorted(ways, key=lambda way: way[0]):
            degrees = (self.irreps_in[source].l, degree, result.l)
            paths.append(Path(source, degrees, (starts[source], degree**2, row), result))
            row += result.dim
        return tuple(paths)

    @property
    def n_paths(self) -> int:
        """Number of paths."""
        return len(self.paths)

    @property
    def dim_in(self) -> int:
        """Components of all features."""
        return sum(irrep.dim for irrep in self.irreps_in)

    @property
    def dim_sh(self) -> int:
        """Components of all harmonics."""
        return (self.lmax + 1) ** 2

    @property
    def dim_out(self) -> int:
        """Components of all results."""
        return sum(path.irrep.dim for path in self.paths)

    @property
    def irreps_out(self) -> tuple[Irrep, ...]:
        """Representation that each path gives."""
        return tuple(path.irrep for path in self.paths)

    def encode(self) -> list[int]:
        """Return the plan as integers, as an operator takes it; `decode` is the inverse."""
        irreps = [number for irrep in (*self.irreps_in, *self.irreps_target) for number in irrep]
        return [self.lmax, len(self.irreps_in), *irreps]

    @classmethod
    def decode(cls, code: Sequence[int]) -> Self:
        """Return the plan from the output of `encode`."""
        lmax, n_in, *numbers = code
        irreps = [Irrep(*numbers[i : i + 2]) for i in range(0, len(numbers), 2)]
        return cls(tuple(irreps[:n_in]), lmax, tuple(irreps[n_in:]))


def _join(irreps: Sequence[Irrep]) -> str:
    return " + ".join(map(str, irreps))
