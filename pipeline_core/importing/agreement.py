"""Judging whether a label agrees with the energies, from energy differences and work.

The energy differences of pairs of frames are fitted by a multiple of the work that the label
predicts: 1 for data that agree, −1 for a wrong sign, the ratio of two units for a wrong unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline_core.importing.sources import RawSource
from pipeline_core.units import DIMENSION, factor, nearest_unit

Floats = NDArray[np.float64]
Verdict = Literal["confirmed", "wrong sign", "wrong unit", "undetermined"]

_FEWEST: Final = 4
_SURE: Final = 0.1  # largest relative standard error of a scale that is believed
_UNIT_RATIO: Final = 4.0  # neighbouring units of one dimension differ by more


@dataclass(frozen=True)
class Fit:
    """How the energy differences of pairs follow from a label.

    Attributes:
        pairs: Number of pairs.
        scale: Factor on the label that fits best; 1 if it is right.
        error: Standard error of the scale.
        rms_as_given: Root mean square of what remains of the energy difference, eV/atom.
        rms_flipped: The same with the sign of the label changed.
        rms_without: The same without the label.
    """

    pairs: int
    scale: float = 0.0
    error: float = float("inf")
    rms_as_given: float = 0.0
    rms_flipped: float = 0.0
    rms_without: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """What the fit says of the label."""
        if self.pairs < _FEWEST or self.error > _SURE * abs(self.scale):
            return "undetermined"
        if self.scale < 0:
            return "wrong sign"
        return "confirmed" if 1 / _UNIT_RATIO < self.scale < _UNIT_RATIO else "wrong unit"

    def report(self) -> dict[str, Any]:
        """Return it as JSON-able values; a fit without pairs is nothing but their number."""
        figures = vars(self) if np.isfinite(self.error) else {"pairs": self.pairs}
        return {"verdict": self.verdict, **figures}


def fit(difference: Floats, work: Floats) -> Fit:
    """Fit energy differences by a multiple of the work of a label.

    Args:
        difference: What the work has to explain, eV/atom, (n_pairs,).
        work: Work by the label as given, eV/atom, (n_pairs,).
    """
    n_pairs, square = len(work), float(work @ work)
    if n_pairs < 2 or square == 0.0:
        return Fit(n_pairs)
    scale = float(difference @ work) / square
    rest = difference - scale * work
    return Fit(
        pairs=n_pairs,
        scale=scale,
        error=float(np.sqrt(rest @ rest / (n_pairs - 1) / square)),
        rms_as_given=_rms(difference - work),
        rms_flipped=_rms(difference + work),
        rms_without=_rms(difference),
    )


def _rms(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))


def require_agreement(fits: Mapping[str, Fit], source: RawSource) -> None:
    """Check that no label of a source contradicts its energies.

    Raises:
        ValueError: The sign or the unit of the forces or of the stress is wrong.
    """
    for problem in _problems(fits, source):
        raise ValueError(f"{source.name}: {problem}")


def _problems(fits: Mapping[str, Fit], source: RawSource) -> Iterator[str]:
    for name, fit in fits.items():
        remains = (
            f"over {fit.pairs} pairs of frames the energy differences are met to "
            f"{fit.rms_as_given:.2g} eV/atom with {name} as given, to {fit.rms_flipped:.2g} with "
            f"the sign flipped; the best factor is {fit.scale:.3g} ± {fit.error:.1g}"
        )
        if fit.verdict == "wrong sign":
            yield f"{name} has the wrong sign: {remains}; {_cure_of_sign(name, source)}"
        elif fit.verdict == "wrong unit":
            yield f"{name} has the wrong unit: {remains}; {_cure_of_unit(name, fit, source)}"


def _cure_of_sign(name: str, source: RawSource) -> str:
    if name == "forces":
        return "the file seems to hold gradients: negate them in the raw file"
    other = {"tension": "pressure", "pressure": "tension"}[source.units.stress_sign]
    return f"set units.stress_sign: {other} for this source"


def _cure_of_unit(name: str, fit: Fit, source: RawSource) -> str:
    dimension = DIMENSION[name]
    given = getattr(source.units, dimension)
    likely = nearest_unit(dimension, fit.scale * factor(dimension, given))
    return f"units.{dimension} is {given}, {likely} would fit; check units.energy as well"
