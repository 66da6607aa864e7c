"""Pareto shape k of the tail of importance weights, a diagnostic of the reliability of averages.

Vehtari, Simpson, Gelman, Yao and Gabry, J. Mach. Learn. Res. 25, 72 (2024), arXiv:1507.02646; fit
of Zhang and Stephens, Technometrics 51, 316 (2009).

| k         | meaning                                                                           |
|-----------|-----------------------------------------------------------------------------------|
| below 1/2 | the weights have a variance                                                       |
| below 0.7 | errors of averages are useful                                                     |
| above     | far more samples are needed than there are; errors are too small                  |
"""

from math import ceil, log10, sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_FEWEST = 5
"""Weights in the tail below which no shape is fitted."""
_ALIKE = 1e-9
"""Largest difference of log-weights that are considered equal."""
_LIMIT = 0.7


def fit_tail_shape(log_weight: Floats) -> float | None:
    """Return k of the generalised Pareto distribution fitted to the largest weights.

    None without a tail: too few weights, or weights that are all equal.

    Args:
        log_weight: Logarithms of weights up to a constant, (n,).
    """
    ordered = np.sort(log_weight) - log_weight.max()
    n = len(ordered)
    length = ceil(min(n / 5, 3 * sqrt(n)))
    if length >= n or ordered[-length - 1] > -_ALIKE:
        return None
    cut = max(ordered[-length - 1], float(np.log(np.finfo(np.float64).tiny)))
    tail = ordered[ordered > cut]
    return fit_pareto_shape(np.exp(tail) - np.exp(cut)) if len(tail) >= _FEWEST else None


def fit_pareto_shape(excess: Floats) -> float:
    """Fit a generalised Pareto distribution of threshold 0, with its shape shrunk towards 1/2.

    The density is (1 + k x / s)^(-1 - 1/k) / s. For theta = -k / s given, k is the mean of
    log(1 - theta x); theta is averaged over its likelihood on a grid.

    Args:
        excess: x > 0, ascending, (n,).
    """
    n = len(excess)
    n_grid = 30 + int(sqrt(n))
    quartile = excess[int(n / 4 + 0.5) - 1]
    step = 1 - np.sqrt(n_grid / (np.arange(1, n_grid + 1) - 0.5))
    theta = 1 / excess[-1] + step / (3 * quartile)  # (n_grid,)
    shape = np.log1p(-theta[:, None] * excess).mean(axis=1)
    likelihood = n * (np.log(-theta / shape) - shape - 1)
    weight = np.exp(likelihood - likelihood.max())
    mean = float(weight @ theta / weight.sum())
    fitted = float(np.log1p(-mean * excess).mean())
    # A weak prior that counts as ten values at 1/2.
    return (n * fitted + 10 * 0.5) / (n + 10)


def compute_shape_limit(n_samples: int) -> float:
    """Return the k above which averages of `n_samples` samples are not reliable."""
    return min(_LIMIT, 1 - 1 / log10(n_samples)) if n_samples > 10 else 0.0
