"""The time of a batch as a linear function of its sizes, fitted to measured batches.

A batch with n_k rows of kind k (atoms, edges, angles) takes

    t = c + Σ_k c_k n_k

where c is the cost of any batch, such as the launch of kernels, and no coefficient is negative.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Seconds = NDArray[np.float64]

_CONSTANT: Final = "constant"
_WIDTH: Final = 5 * 1.4826
"""Largest deviation of an inlier, in median absolute deviations: 5 σ of normal errors."""
_LEAST_WIDTH: Final = 1e-3
"""Relative error below which a batch is never an outlier, however well the others fit."""
_ROUNDS: Final = 20


@dataclass(frozen=True)
class CostModel:
    """The time of a batch from its sizes, or its memory.

    Attributes:
        constant: c, time of any batch, s, or bytes.
        per: c_k, time of each row of a kind, s, or bytes.
    """

    constant: float
    per: Mapping[str, float]

    @classmethod
    def of(cls, coefficients: Mapping[str, float]) -> Self:
        """Return the model that has these `coefficients`."""
        per = {kind: value for kind, value in coefficients.items() if kind != _CONSTANT}
        return cls(coefficients[_CONSTANT], per)

    @property
    def coefficients(self) -> dict[str, float]:
        """All coefficients by name: "constant" and the kinds; JSON-able."""
        return {_CONSTANT: self.constant, **self.per}

    def predict_seconds(self, sizes: Mapping[str, ArrayLike]) -> Seconds:
        """Return the contribution of each sample to the time of a batch, Σ_k c_k n_k, (n_samples,).

        Args:
            sizes: Rows of each kind in each sample, kind -> (n_samples,); may have further kinds.

        Raises:
            ValueError: A kind of the model is missing.
        """
        lacking = self.per.keys() - sizes.keys()
        if lacking:
            raise ValueError(
                f"sizes: the model of costs needs the kinds {', '.join(sorted(self.per))}, got "
                f"{', '.join(sorted(sizes)) or 'none'}; fit it to samples of the same kinds"
            )
        parts = [value * np.asarray(sizes[kind], float) for kind, value in self.per.items()]
        return np.asarray(np.sum(parts, axis=0), dtype=np.float64)

    def predict(self, totals: Mapping[str, ArrayLike]) -> Seconds:
        """Return the time of each batch, (n_batches,), from the sums of sizes over its samples."""
        return self.constant + self.predict_seconds(totals)


def fit(totals: Mapping[str, ArrayLike], seconds: ArrayLike) -> CostModel:
    """Fit the time of batches to measurements.

    The fit is to relative errors, so that small batches are as important as large ones: with
    measured times t_b and fitted ones f_b,

        minimize Σ_b ((f_b - t_b) / t_b)²  with all coefficients ≥ 0,

    the non-negative least squares of C. L. Lawson and R. J. Hanson, "Solving Least Squares
    Problems" (1974), chapter 23. Where kinds grow together, as edges do with atoms, it omits those
    that others explain. Then batches are omitted whose relative error is further from the median
    than five standard deviations, estimated by the median absolute deviation of all of them (F. R.
    Hampel, doi:10.1080/01621459.1974.10482962), until the selection no longer changes. A batch that
    took far too long has little weight from the beginning, as its errors are divided by its time.

    Args:
        totals: Rows of each kind in each batch, kind -> (n_batches,).
        seconds: Measured times, s, (n_batches,).

    Raises:
        ValueError: There is no kind or no batch, shapes differ, or a time is not positive.
    """
    kinds, times = list(totals), np.asarray(seconds, dtype=np.float64)
    columns = [np.asarray(totals[kind], dtype=np.float64) for kind in kinds]
    if times.ndim != 1 or not len(times) or any(c.shape != times.shape for c in columns):
        raise ValueError(
            f"totals, seconds: expected shapes (n_batches,), got {[c.shape for c in columns]} and "
            f"{times.shape}; give the sizes and the time of each of at least one batch"
        )
    if not kinds or not (np.isfinite(times) & (times > 0)).all():
        raise ValueError(
            "totals, seconds: expected at least one kind and positive times; leave out batches "
            "that were not measured"
        )
    rows = np.stack([np.ones_like(times), *columns], axis=1) / times[:, None]
    constant, *per = _fit_robust(rows).tolist()
    return CostModel(constant, dict(zip(kinds, per, strict=True)))


def _fit_robust(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the coefficients, (n_columns,), that bring most products with `rows` close to one."""
    kept = np.ones(len(rows), dtype=bool)
    solution = fit_nonnegative(rows)
    for _ in range(_ROUNDS):
        deviations = np.abs(rows @ solution - np.median(rows @ solution))
        close = deviations <= max(_WIDTH * float(np.median(deviations)), _LEAST_WIDTH)
        if (close == kept).all():
            break
        kept, solution = close, fit_nonnegative(rows[close])
    return solution


def fit_nonnegative(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return coefficients, none negative, whose products with `rows` are closest to one.

    Args:
        rows: Quantities of each measurement over its time, (n_measurements, n_columns).

    Returns:
        (n_columns,)
    """
    # Slow to import, and not needed by trainings that measure nothing.
    from scipy.optimize import nnls

    # Kinds differ by orders of magnitude: columns of equal norm keep the problem well conditioned.
    lengths = np.linalg.norm(rows, axis=0)
    lengths[lengths == 0] = 1.0
    solution: Any = nnls(rows / lengths, np.ones(len(rows)))[0]
    return np.asarray(solution / lengths, dtype=np.float64)
