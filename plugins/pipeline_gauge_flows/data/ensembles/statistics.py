"""Means, errors and autocorrelation times of Markov chains by the Gamma method of `pyerrors`.

Wolff, Comput. Phys. Commun. 156, 143 (2004); Joswig et al., Comput. Phys. Commun. 288, 108750
(2023).
"""

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ENOUGH: Final = 16
"""Length of the shortest chain for which an autocorrelation time is estimated."""


@dataclass(frozen=True)
class Estimate:
    """Expectation value from Markov chains.

    Attributes:
        mean: Mean over all values.
        error: Standard error with autocorrelation; without it if `tau_int` is None.
        tau_int: Integrated autocorrelation time in units of the distance of values, 0.5 for
            independent ones: estimated from long chains, else as given; None if unknown.
        tau_error: Standard error of `tau_int`; None if some chains are too short.
        count: Number of values.
    """

    mean: float
    error: float
    tau_int: float | None
    tau_error: float | None
    count: int

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes, JSON-able."""
        return asdict(self)


@dataclass(frozen=True)
class ChainRows:
    """Rows of each Markov chain in a table.

    Attributes:
        rows: Indices of the rows of each chain, in order, (n,) each.
        tau_int: Autocorrelation time in units of the distance of rows, for chains that
            are too short for an estimate; None if unknown.
    """

    rows: Sequence[NDArray[np.int64]] = ()
    tau_int: float | None = None

    def estimate(self, values: Floats) -> Estimate:
        """Return the mean of a column, (n,)."""
        return estimate([values[rows] for rows in self.rows], self.tau_int)


def estimate(chains: Sequence[Floats], tau_int: float | None = None) -> Estimate:
    """Return the mean of a quantity over chains of the same distribution.

    Args:
        chains: The values of each chain in their order, (n,) each.
        tau_int: Autocorrelation time if all chains are too short for an estimate; None if unknown.
    """
    values = np.concatenate(chains)
    mean, spread, count = float(values.mean()), float(values.std()), len(values)
    long = [chain for chain in chains if len(chain) >= _ENOUGH]
    if len(long) < len(chains):
        tau = estimate(long).tau_int if long else tau_int
        error = spread / np.sqrt(max(count - 1, 1)) * np.sqrt(1 if tau is None else 2 * tau)
        return Estimate(mean, float(error), tau, None, count)
    if spread <= 1e-14 * abs(mean):
        return Estimate(mean, 0.0, 0.5, 0.0, count)
    observable = import_pyerrors().Obs(list(chains), [f"chain|{i:04d}" for i in range(len(chains))])
    observable.gamma_method()
    return Estimate(
        mean,
        float(observable.dvalue),
        float(observable.e_tauint["chain"]),
        float(observable.e_dtauint["chain"]),
        count,
    )


def compute_drift(chains: Sequence[Floats]) -> float | None:
    """Return the mean of second halves of chains minus first halves, in standard errors.

    Above about 4 the chains were not in equilibrium. None if they are too short.
    """
    if min(len(chain) for chain in chains) < 2 * _ENOUGH:
        return None
    first = estimate([chain[: len(chain) // 2] for chain in chains])
    second = estimate([chain[len(chain) // 2 :] for chain in chains])
    error = np.hypot(first.error, second.error)
    return float((second.mean - first.mean) / error) if error > 0 else 0.0


def import_pyerrors() -> Any:
    """Return the module, imported without the warnings of its own imports."""
    with warnings.catch_warnings():
        # It imports a module that SciPy has deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        import pyerrors
    return pyerrors
