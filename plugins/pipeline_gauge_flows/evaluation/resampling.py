"""Bootstrap errors of functions of means.

All means that are resampled together use the same draws of configurations, so that errors of
functions of them take their correlations into account. For few values with a long tail,
such as weights of a poor flow, errors are too small: see `pareto`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_gauge_flows.data.ensembles.statistics import ChainRows

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

_ROUNDING: Final = 1e-9
"""Errors up to this size are due to rounding."""
_INVERSE_PART: Final = 10
"""Inverse of the fraction of a variance that blocks may miss."""
_FEWEST_BLOCKS: Final = 20
"""Fewest blocks; with fewer, errors of errors would exceed the variance that blocks miss."""


@dataclass(frozen=True)
class Value:
    """Number with its standard error."""

    value: float
    error: float

    def to_dict(self) -> dict[str, float | None]:
        """Return value and error, JSON-able; None if not finite."""
        return {key: x if np.isfinite(x) else None for key, x in asdict(self).items()}

    def measure_distance(self, expected: float, uncertainty: float = 0.0) -> float | None:
        """Return the distance from an expected value in standard errors; None without an error.

        Args:
            expected: The value.
            uncertainty: Uncertainty of the expected value.
        """
        error = float(np.hypot(self.error, uncertainty))
        return (self.value - expected) / error if error > 0 and np.isfinite(error) else None

    def __str__(self) -> str:
        """Return the value with its error in brackets, in units of its last digits: 0.367(9)."""
        if not (np.isfinite(self.error) and self.error > _ROUNDING):
            return f"{self.value:.6g}"
        digits = -int(np.floor(np.log10(self.error)))
        # Two digits of errors that begin with a one.
        digits += round(self.error * 10.0**digits, 1) < 2
        digits = max(digits, 0)
        return f"{self.value:.{digits}f}({round(self.error * 10**digits)})"


def compute_value(series: Floats) -> Value:
    """Return value and error of a function of the means, (1 + n_resamples,)."""
    with np.errstate(invalid="ignore"):
        return Value(float(series[0]), float(series[1:].std()))


class Resampled:
    """Means of columns over all rows, and over resampled rows.

    Args:
        columns: Name -> (n,).
        n_resamples: Number of resamples: all rows, drawn with replacement.
        seed: Seed of the draws.
        blocks: Number of the block of each row, (n,), counted from 0: blocks are drawn in place of
            rows, as rows of one block may be correlated. None for independent rows.
    """

    def __init__(
        self,
        columns: Mapping[str, Floats],
        n_resamples: int,
        seed: Sequence[int],
        blocks: Numbers | None = None,
    ) -> None:
        self._places = {name: place for place, name in enumerate(columns)}
        table = np.stack([*columns.values(), np.ones(len(next(iter(columns.values()))))], axis=1)
        if blocks is not None:
            table = np.stack([np.bincount(blocks, column) for column in table.T], axis=1)
        random, n = np.random.default_rng(seed), len(table)
        sums = np.empty((1 + n_resamples, table.shape[1]))
        sums[0] = table.sum(axis=0)
        for row in sums[1:]:
            row[:] = np.bincount(random.integers(n, size=n), minlength=n) @ table
        self._means = sums[:, :-1] / sums[:, -1:]

    def __getitem__(self, name: str) -> Floats:
        """Return the means of a column, (1 + n_resamples,), first the mean of all rows."""
        means: Floats = self._means[:, self._places[name]]
        return means


def make_blocks(chains: ChainRows, series: Sequence[Floats], n: int) -> Numbers:
    """Return blocks long enough to preserve the autocorrelation of some quantities.

    Blocks of length B miss a fraction (tau - 1 / (4 tau)) / B of the variance of a mean if
    autocorrelations fall exponentially. It is a tenth, so that errors are a twentieth too small,
    or more if there would be fewer than 20 blocks.

    Args:
        chains: Rows of each Markov chain.
        series: The quantities, (n,) each.
        n: Number of rows.

    Returns:
        Number of the block of each row, (n,).
    """
    times = [chains.estimate(one).tau_int or 0.5 for one in series]
    tau = max(0.5, *times)
    length = max(1, min(ceil(_INVERSE_PART * (tau - 1 / (4 * tau))), n // _FEWEST_BLOCKS))
    blocks = np.empty(n, dtype=np.int64)
    number = 0
    for rows in chains.rows:
        for part in np.array_split(rows, max(1, len(rows) // length)):
            blocks[part] = number
            number += 1
    return blocks


def replace_not_finite(content: Any) -> Any:
    """Return nested JSON-able values with None in place of numbers that are not finite."""
    if isinstance(content, dict):
        return {key: replace_not_finite(value) for key, value in content.items()}
    if isinstance(content, list):
        return [replace_not_finite(value) for value in content]
    return None if isinstance(content, float) and not np.isfinite(content) else content
