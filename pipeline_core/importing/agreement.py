"""Judging whether a label agrees with the energies, from energy differences and work.

Let y be the energy differences of pairs of frames and x the work that the label predicts for them.
The factor k in y = k x is 1 for data that agree, −1 for a wrong sign and the ratio of two units for
a wrong unit. It is estimated by the median of y/x with weights w = |x|, capped at their median, and
not by least squares: published sets hold pairs of frames that were calculated differently and whose
energies jump, and a few of them must not decide. At the true factor Σ w sign(y/x − k) has zero mean
and the variance Σw², whatever the errors are like; the factors for which it lies within
2.58 standard deviations are the 99 % interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline_core.importing.sources import RawSource
from pipeline_core.units import DIMENSION, factor, nearest_unit

Floats = NDArray[np.float64]
Verdict = Literal["confirmed", "wrong sign", "wrong unit", "undetermined"]

_DEVIATIONS: Final = 2.58
_UNIT_RATIO: Final = 4.0  # units differ by more, the trapezoid rule is off by less


@dataclass(frozen=True)
class Agreement:
    """How the energy differences of pairs of frames follow from a label.

    Attributes:
        pairs: Number of pairs.
        factor: Number that the label is to be multiplied with; 1 if it is right.
        interval: Where this number lies with 99 % confidence; infinite if the pairs are too few.
        rest_as_given: Median of what remains of the energy differences, eV/atom.
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
        """What the pairs say of the label."""
        low, high = self.interval
        if high < 0:
            return "wrong sign"
        if low > 1 / _UNIT_RATIO and high < _UNIT_RATIO:
            return "confirmed"
        if low > _UNIT_RATIO or (low > 0 and high < 1 / _UNIT_RATIO):
            return "wrong unit"
        return "undetermined"

    @property
    def is_mixed(self) -> bool:
        """Whether there are enough pairs, but their factors differ widely."""
        return self.verdict == "undetermined" and math.isfinite(self.factor)

    def report(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        figures = vars(self) if math.isfinite(self.factor) else {"pairs": self.pairs}
        return {"verdict": self.verdict, **figures}


def agreement(difference: Floats, work: Floats) -> Agreement:
    """Fit energy differences by a multiple of the work of a label.

    Args:
        difference: What the work has to explain, eV/atom, (n_pairs,).
        work: Work by the label as given, eV/atom, (n_pairs,).
    """
    y, x = difference[work != 0], work[work != 0]
    ratio, weight = y / x, np.minimum(np.abs(x), np.median(np.abs(x)) if len(x) else 0.0)
    order = np.argsort(ratio)
    below = np.cumsum(weight[order])
    middle, half = weight.sum() / 2, _DEVIATIONS / 2 * np.sqrt(np.sum(weight**2))
    if half >= middle:
        return Agreement(len(x))
    low, best, high = ratio[order][np.searchsorted(below, [middle - half, middle, middle + half])]
    return Agreement(
        pairs=len(x),
        factor=float(best),
        interval=(float(low), float(high)),
        rest_as_given=float(np.median(np.abs(y - x))),
        rest_flipped=float(np.median(np.abs(y + x))),
        rest_without=float(np.median(np.abs(y))),
    )


def require_agreement(found: Mapping[str, Agreement], source: RawSource) -> None:
    """Check that no label of a source contradicts its energies.

    Args:
        found: Label to what was found.
        source: The source.

    Raises:
        ValueError: The sign or the unit of the forces or of the stress is wrong.
    """
    for label, one in found.items():
        if one.verdict == "wrong sign":
            cure = _cure_of_sign(label, source)
        elif one.verdict == "wrong unit":
            cure = _cure_of_unit(label, one, source)
        else:
            continue
        low, high = one.interval
        raise ValueError(
            f"{source.name}: {label}: {one.verdict}: over {one.pairs} pairs of frames the energy "
            f"differences are met to {one.rest_as_given:.2g} eV/atom as given and to "
            f"{one.rest_flipped:.2g} with the sign flipped; the factor that fits best lies between "
            f"{low:.3g} and {high:.3g}; {cure}"
        )


def _cure_of_sign(label: str, source: RawSource) -> str:
    if label == "forces":
        return "the file seems to hold gradients: negate them in the raw file"
    other = {"tension": "pressure", "pressure": "tension"}[source.units.stress_sign]
    return f"set units.stress_sign: {other} for this source"


def _cure_of_unit(label: str, found: Agreement, source: RawSource) -> str:
    dimension = DIMENSION[label]
    given = getattr(source.units, dimension)
    likely = nearest_unit(dimension, found.factor * factor(dimension, given))
    return f"units.{dimension} is {given}, {likely} would fit; check units.energy as well"
