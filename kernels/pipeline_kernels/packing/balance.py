"""Figures of load balance between ranks."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Balance:
    """Load balance of an epoch; in each step all ranks wait for the slowest one.

    Attributes:
        efficiency: sum over steps of the mean share, over the sum of the largest share; 1 is best.
        variation: standard deviation of all shares over their mean; 0 is best.
        variation_in_steps: the same without what steps differ by: root mean square deviation of
            shares from the mean of their step, over the mean of all; 0 is best.
        padding: part of the work that were padding if each share were padded to the largest one,
            as fixed shapes demand; 0 is best.
        deferred: samples that their step had no room for and a later one took.
    """

    efficiency: float
    variation: float
    variation_in_steps: float
    padding: float
    deferred: int = 0


def measure_balance(loads: ArrayLike, deferred: int = 0) -> Balance:
    """Report the balance of an epoch.

    Args:
        loads: cost of each rank's share in each step, `(n_steps, n_ranks)`.
        deferred: samples that were deferred, to be reported with the figures.

    Returns:
        The figures; perfect balance if all costs are zero.

    Raises:
        ValueError: if `loads` has another shape.
    """
    loads = np.asarray(loads, dtype=np.float64)
    if loads.ndim != 2:
        raise ValueError(f"loads: expected shape (n_steps, n_ranks), got {loads.shape}")
    if not loads.any():
        return Balance(
            efficiency=1.0, variation=0.0, variation_in_steps=0.0, padding=0.0, deferred=deferred
        )
    mean, deviations = loads.mean(), loads - loads.mean(1, keepdims=True)
    return Balance(
        efficiency=float(loads.mean(1).sum() / loads.max(1).sum()),
        variation=float(loads.std() / mean),
        variation_in_steps=float(np.sqrt((deviations**2).mean()) / mean),
        padding=float(1 - mean / loads.max()),
        deferred=deferred,
    )
