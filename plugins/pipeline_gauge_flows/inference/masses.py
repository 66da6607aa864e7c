"""Meson mass as a function of the means of its correlator, and its logarithm.

| symbol                                                | here                              |
|-------------------------------------------------------|-----------------------------------|
| C(t) = A cosh(M (T/2 - t)), t_min <= t <= t_max       | `MassFit`, correlated             |
| log(M) / 2, whose derivative is <h|O|h> of Eq. 15     | `LogMass`                         |

Equations are of arXiv:2502.00263. With O of Eq. 16 the momentum fraction of gluons, Eq. 17, is
-4/3 of <h|O|h>. Fits use `pyerrors` (Joswig et al., Comput. Phys. Commun. 288, 108750
(2023)), including derivatives by the data for error propagation. All fits of a range
share one covariance matrix: M is the same function of the means for all ensembles.
"""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_gauge_flows.data.ensembles.statistics import import_pyerrors

Floats = NDArray[np.float64]

CORRELATOR: Final = "pion"
"""Column of C(t), (n, T/2 + 1), the mean of t and T - t."""


@dataclass(frozen=True)
class Fit:
    """Fit of means.

    Attributes:
        mass: M.
        gradient: dM/dC(t) for t of the range.
        chi_square: Chi-square of the correlated fit.
        dof: Degrees of freedom.
    """

    mass: float
    gradient: Floats
    chi_square: float
    dof: int


@dataclass(frozen=True)
class MassFit:
    """Fit range of a correlator.

    Attributes:
        times: The range, t_min to t_max.
        middle: T/2.
        covariance: Covariance matrix of the means of C(t) in the range.
    """

    times: range
    middle: int
    covariance: Floats

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the means that determine the mass."""
        return tuple(f"{CORRELATOR}_{t}" for t in self.times)

    def __call__(self, means: Floats) -> Floats:
        """Return M of rows of means, (m, times) -> (m,), to first order about the first row."""
        fit = self.fit(means[0])
        masses: Floats = fit.mass + (means - means[0]) @ fit.gradient
        return masses

    def fit(self, means: Floats) -> Fit:
        """Fit means, (times,); NaN if they do not fall like a correlator."""
        if not (means[-1] > 0 and means[0] > means[-1]):
            return Fit(np.nan, np.full(len(means), np.nan), np.nan, len(means) - 2)
        errors = import_pyerrors()
        scale = means[-1]
        covariance = (self.covariance + self.covariance.T) / (2 * scale**2)
        data = errors.cov_Obs(list(means / scale), covariance, CORRELATOR)
        for one in data:
            one.gamma_method()
        steps = np.log(means[0] / means[-1]) / (len(means) - 1)
        # Two times are fitted exactly, for any correlation.
        fit = errors.least_squares(
            np.array(self.times, float), data, self._make_model(), silent=True,
            initial_guess=[1.0, float(steps)], correlated_fit=len(means) > 2, n_parms=2,
        )  # fmt: skip
        mass = fit.fit_parameters[1]
        sign = np.sign(mass.value)
        gradient = sign * mass.covobs[CORRELATOR].grad.ravel() / scale
        return Fit(abs(mass.value), gradient, float(fit.chisquare), int(fit.dof))

    def _make_model(self) -> Any:
        middle, last = self.middle, self.times[-1]

        def evaluate(parameters: Any, t: Any) -> Any:
            amplitude, mass = parameters
            return amplitude * _cosh(mass * (middle - t)) / _cosh(mass * (middle - last))

        return evaluate


def _cosh(x: Any) -> Any:
    """Return cosh x by powers, which automatic differentiation supports."""
    return (math.e**x + math.e**-x) / 2


@dataclass(frozen=True)
class LogMass:
    """The function log(M) / 2.

    Attributes:
        mass: Name of M.
    """

    mass: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """Name of the only input, M."""
        return (self.mass,)

    def __call__(self, means: Floats) -> Floats:
        """Evaluate for rows of M, (m, 1) -> (m,), to first order about the first row."""
        first = means[0, 0]
        values: Floats = (np.log(first) + means[:, 0] / first - 1) / 2
        return values
