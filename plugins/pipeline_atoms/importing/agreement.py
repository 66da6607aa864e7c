"""Consistency of a label with the energies, from energy differences and work.

Let y be the energy differences of pairs of frames and x the work that the label predicts for them.
The factor k in y = k x is 1 for consistent data, −1 for a wrong sign and the ratio of two units for
a wrong unit. It is estimated by the median of y/x and not by least squares: published sets contain
pairs of frames from different calculations with a jump in energy, and a few of them must not
decide. Of n ratios n/2 ± 1.29 √n lie below the true factor in 99 % of all cases, for any
distribution of errors (sign test; W. J. Conover, Practical Nonparametric Statistics, chapter 3),
which gives its confidence interval.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.importing.sources import RawSource
from pipeline_core.units import DIMENSION, find_factor, measure_distances

Floats = NDArray[np.float64]
Verdict = Literal["confirmed", "wrong sign", "wrong unit", "undetermined"]

_DEVIATIONS: Final = 2.58
FEWEST_PAIRS: Final = math.ceil(_DEVIATIONS**2)
"""Smallest number of pairs of frames for which the interval of the factor is finite."""
_NO_WORK: Final = 1e-9  # eV/atom
_SAME_UNIT: Final = 2.0  # stress from vibration appears too small by up to this factor
_ALIKE: Final = 1.1  # units of labels and energies between which the factor does not decide
_UNIT_RATIO: Final = 4.0  # units differ by more, the trapezoid rule is off by less


@dataclass(frozen=True)
class Agreement:
    """Agreement of a label with the energy differences of pairs of frames.

    Attributes:
        pairs: Number of pairs.
        factor: Number to multiply the label with; 1 if it is right.
        interval: Its 99 % confidence interval; infinite if the pairs are too few.
        rest_as_given: Median of the absolute residuals of the energy differences, eV/atom.
        rest_flipped: The same with the sign of the label changed.
        rest_without: The same without the label.
    """

    pairs: int
    factor: float = math.nan
    interval: tuple[float, float] = (-math.inf, math.inf)
    rest_as_given: float = math.nan
    rest_flipped: float = math.nan
    rest_without: float = math.nan

    @property
    def verdict(self) -> Verdict:
        """Verdict of the pairs on the label."""
        low, high = self.interval
        nearest, farthest = sorted((abs(low), abs(high)))
        if low * high <= 0 or farthest > _UNIT_RATIO**2 * nearest:
            return "undetermined"
        if high < 0:
            return "wrong sign"
        if low > 1 / _UNIT_RATIO and high < _UNIT_RATIO:
            return "confirmed"
        outside = low > _UNIT_RATIO or high < 1 / _UNIT_RATIO
        return "wrong unit" if outside else "undetermined"

    @property
    def is_mixed(self) -> bool:
        """True if there are enough pairs, but their factors differ widely."""
        return self.verdict == "undetermined" and math.isfinite(self.factor)

    def report(self) -> dict[str, Any]:
        """Return the agreement as JSON-able values."""
        figures = vars(self) if math.isfinite(self.factor) else {"pairs": self.pairs}
        return {"verdict": self.verdict, **figures}


def measure_agreement(difference: Floats, work: Floats) -> Agreement:
    """Fit energy differences by a multiple of the work of a label.

    Args:
        difference: Energy differences, eV/atom, (n_pairs,).
        work: Work by the label as given, eV/atom, (n_pairs,).
    """
    works = np.abs(work) > _NO_WORK
    y, x = difference[works], work[works]
    n, ratio = len(x), np.sort(y / x)
    below = math.floor((n - _DEVIATIONS * math.sqrt(n)) / 2)
    if n == 0 or below < 0:
        return Agreement(n)
    return Agreement(
        pairs=n,
        factor=float(np.median(ratio)),
        interval=(float(ratio[below]), float(ratio[n - 1 - below])),
        rest_as_given=float(np.median(np.abs(y - x))),
        rest_flipped=float(np.median(np.abs(y + x))),
        rest_without=float(np.median(np.abs(y))),
    )


def require_agreement(agreements: Mapping[str, Agreement], source: RawSource) -> None:
    """Check that no label of a source contradicts its energies.

    Args:
        agreements: Label to its agreement with the energies.
        source: The source.

    Raises:
        ValueError: The sign or the unit of the forces or of the stress is wrong.
    """
    for label, one in agreements.items():
        if one.verdict == "wrong sign":
            cure = _suggest_sign(label, source)
        elif one.verdict == "wrong unit":
            cure = _suggest_unit(label, one, source)
        else:
            continue
        low, high = one.interval
        raise ValueError(
            f"{source.name}: {label}: {one.verdict}: over {one.pairs} pairs of frames the energy "
            f"differences are met to {one.rest_as_given:.2g} eV/atom as given and to "
            f"{one.rest_flipped:.2g} with the sign flipped; the factor that fits best lies between "
            f"{low:.3g} and {high:.3g}; {cure}"
        )


def _suggest_sign(label: str, source: RawSource) -> str:
    if label == "forces":
        return "the file seems to hold gradients: negate them in the raw file"
    other = {"tension": "pressure", "pressure": "tension"}[source.units.stress_sign]
    return f"set units.stress_sign: {other} for this source"


def _suggest_unit(label: str, measured: Agreement, source: RawSource) -> str:
    """Name the units of the label, and of the energies, that would explain the factor.

    Energies in a unit k times as large as given have the same effect as a label in a unit k times
    as small.
    """
    fits: list[tuple[float, str]] = []
    for dimension, power in ((DIMENSION[label], 1), ("energy", -1)):
        given = getattr(source.units, dimension)
        distances = measure_distances(
            dimension, measured.factor**power * find_factor(dimension, given)
        )
        del distances[given]
        unit = min(distances, key=distances.__getitem__)
        fits.append((distances[unit], f"units.{dimension} is {given}, {unit} would fit"))
    nearest = min(fits)[0]
    if nearest < math.log(_SAME_UNIT):
        alike = [text for distance, text in sorted(fits) if distance - nearest < math.log(_ALIKE)]
        return ", or ".join(alike)
    return (
        f"no other unit of {label} or energies alone would fit: check units.{DIMENSION[label]}, "
        "units.energy and units.length together"
    )
