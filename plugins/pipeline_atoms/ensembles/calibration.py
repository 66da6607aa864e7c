"""Calibrated uncertainty from the spread of an ensemble (committee): split conformal prediction.

The spread σ of the members is at best proportional to the error, so it is scaled on the validation
split. With the scores s = |error| / u of its n numbers, sorted, and

    u² = σ² + σ₀²,   q(p) = s_k,   k = ⌈(n + 1) p⌉

an interval of prediction ± q(p) u holds the truth with a probability of at least p, whatever the
distribution of errors [1]; it was introduced to potentials by [2]. The method assumes that
validation data and data in use are exchangeable, such as drawn from one distribution: this holds
for held-out samples of the same source, and not for structures of dynamics that has left the data.
Components of one frame are correlated, so few validation frames are worth less than their many
forces suggest; and as the best epoch was chosen on these frames, their errors are a little smaller
than others.

Where n is too small for k ≤ n (below 19 numbers for p = 0.95) errors over u are taken as normal:
q(p) is the quantile of Student's distribution with n degrees of freedom times the root mean square
of the scores.

| symbol | variable |
|---|---|
| σ, standard deviation over members | `spread` |
| σ₀, `FLOOR` times the root mean square of σ over the validation split | `floor` |
| q, half width of an interval over u | `factors` |

[1] V. Vovk, A. Gammerman, G. Shafer, Algorithmic Learning in a Random World (Springer, 2005);
    A. N. Angelopoulos, S. Bates, arXiv:2107.07511, section 1.
[2] Y. Hu, J. Musielewicz, Z. W. Ulissi, A. J. Medford, Mach. Learn.: Sci. Technol. 3, 045028
    (2022), doi:10.1088/2632-2153/aca7b1.
"""

from math import ceil
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from scipy.special import ndtri, stdtrit

Floats = NDArray[np.float64]

LEVEL: Final = 0.95
"""Probability of the displayed intervals."""
LEVELS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, LEVEL, 0.99)
FLOOR: Final = 0.1
"""Keeps scores finite for atoms on which, as by symmetry, all members agree."""
_TRUSTED: Final = 2.0
"""A choice, not a result: much wider intervals were hardly tested."""
_LEAST_IN_BIN: Final = 20


class Calibration(BaseModel):
    """Calibration of the intervals of one quantity."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: str
    split: str
    """Split on which it was measured."""
    count: int
    """Numbers of that split."""
    method: Literal["conformal", "normal"]
    """Method for the intervals of `LEVEL`."""
    floor: float
    """In `unit`."""
    factors: dict[float, float]
    """Half widths over u, by level."""
    trusted: float
    """Half width above which dynamics is flagged: twice what 99 % of the split stay below."""

    def compute_half_widths(self, spread: Floats, level: float = LEVEL) -> Floats:
        """Return half widths of the intervals of a level, shaped as `spread`, in the same unit."""
        return self.factors[level] * np.hypot(spread, self.floor)


def pool_components(spread: Floats) -> Floats:
    """Return one spread per atom, (n_atoms,), from those of its components, (n_atoms, 3).

    It is their root mean square, which is invariant under rotation and scatters less than each.
    """
    pooled: Floats = np.sqrt((spread**2).mean(axis=1))
    return pooled


def calibrate(error: Floats, spread: Floats, unit: str, split: str) -> Calibration:
    """Return the calibration of intervals from errors and spreads.

    Args:
        error: Mean of the members minus label, (n,).
        spread: Standard deviation of the members, (n,).
        unit: Unit of both.
        split: Split that they are from.

    Raises:
        ValueError: There are no errors, or all members predict the same.
    """
    if not len(error):
        raise ValueError("no labels there, so the committee cannot be calibrated")
    floor = FLOOR * float(np.sqrt((spread**2).mean()))
    if not floor > 0:
        raise ValueError("all members predict the same; their trainings have to differ by seed")
    scores = np.sort(np.abs(error) / np.hypot(spread, floor))
    factors = {level: find_factor(scores, level) for level in LEVELS}
    return Calibration(
        unit=unit,
        split=split,
        count=len(error),
        method="conformal" if ceil((len(error) + 1) * LEVEL) <= len(error) else "normal",
        floor=floor,
        factors=factors,
        trusted=_TRUSTED * factors[LEVEL] * float(np.quantile(np.hypot(spread, floor), 0.99)),
    )


def find_factor(scores: Floats, level: float) -> float:
    """Return the half width over u of intervals of a level, from sorted scores (n,)."""
    rank = ceil((len(scores) + 1) * level)
    if rank <= len(scores):
        return float(scores[rank - 1])
    rms = float(np.sqrt((scores**2).mean()))
    return float(stdtrit(len(scores), (1 + level) / 2)) * rms


def report_coverage(error: Floats, spread: Floats, calibration: Calibration) -> dict[str, Any]:
    """Return the coverage of the intervals, and their widths.

    Args:
        error: Mean of the members minus label, (n,), at least one.
        spread: Standard deviation of the members, (n,).
        calibration: Calibration on another split.

    Returns:
        Errors; `coverage` of the intervals of `LEVEL`; their mean half width; `reliability`: by
        level the share of errors within the calibrated intervals and, as `uncalibrated`, within
        those of a normal distribution of the width of the spread itself; `bins` of equally many
        numbers, from small half widths to large: mean half width and that which would hold `LEVEL`.
    """
    size, half = np.abs(error), calibration.compute_half_widths(spread)
    return {
        "count": len(error),
        "unit": calibration.unit,
        "mae": float(size.mean()),
        "rmse": float(np.sqrt((error**2).mean())),
        "coverage": float((size <= half).mean()),
        "mean_half_width": float(half.mean()),
        "reliability": {
            str(level): {
                "calibrated": float(
                    (size <= calibration.compute_half_widths(spread, level)).mean()
                ),
                "uncalibrated": float((size <= ndtri((1 + level) / 2) * spread).mean()),
            }
            for level in LEVELS
        },
        "bins": _sort_into_bins(size, half),
    }


def _sort_into_bins(size: Floats, half: Floats) -> list[dict[str, float]]:
    n_bins = min(10, len(size) // _LEAST_IN_BIN)
    if n_bins < 2:
        return []
    return [
        {
            "count": len(some),
            "half_width": float(half[some].mean()),
            "needed": float(np.quantile(size[some], LEVEL)),
        }
        for some in np.array_split(np.argsort(half, kind="stable"), n_bins)
    ]
