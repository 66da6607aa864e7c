"""Error metrics of predictions, accumulated batch by batch so that no dataset is too large."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Errors:
    """Sums over compared numbers (components of vectors count one by one); `a + b` joins two sets.

    The spread of the labels is carried as the sum of squares around their mean and joined by the
    update of Chan, Golub and LeVeque, Am. Stat. 37, 242 (1983), doi:10.2307/2683386, because the
    difference of two raw sums loses all digits for total energies.

    Attributes:
        count: Numbers with a label.
        missing: Numbers without.
        absolute: Sum of absolute errors.
        square: Sum of error².
        largest: Largest absolute error.
        label_absolute: Sum of absolute labels.
        label_mean: Mean of the labels.
        label_spread: Sum of (label - mean)².
    """

    count: int = 0
    missing: int = 0
    absolute: float = 0.0
    square: float = 0.0
    largest: float = 0.0
    label_absolute: float = 0.0
    label_mean: float = 0.0
    label_spread: float = 0.0

    @classmethod
    def of(cls, error: Floats, label: Floats) -> Errors:
        """Sum up one batch.

        Args:
            error: Prediction minus label, any shape; ignored where there is no label.
            label: Same shape, NaN where it is missing.
        """
        present = ~np.isnan(label)
        error, label = np.abs(error[present]), label[present]
        if len(label) == 0:
            return cls(missing=present.size)
        mean = float(label.mean())
        return cls(
            count=len(label),
            missing=present.size - len(label),
            absolute=float(error.sum()),
            square=float((error**2).sum()),
            largest=float(error.max()),
            label_absolute=float(np.abs(label).sum()),
            label_mean=mean,
            label_spread=float(((label - mean) ** 2).sum()),
        )

    def __add__(self, other: Errors) -> Errors:
        count = self.count + other.count
        weight = other.count / count if count else 0.0
        shift = other.label_mean - self.label_mean
        return Errors(
            count,
            self.missing + other.missing,
            self.absolute + other.absolute,
            self.square + other.square,
            max(self.largest, other.largest),
            self.label_absolute + other.label_absolute,
            self.label_mean + weight * shift,
            self.label_spread + other.label_spread + shift**2 * self.count * weight,
        )

    def report(self, unit: str) -> dict[str, Any]:
        """Return the metrics, all in `unit` but R² and the counts; null where there is no label.

        R² = 1 - Σ error² / Σ (label - mean)², null where all labels are equal. MAE over
        `label_mean_absolute` is the relative error that papers quote for forces.
        """
        metrics: dict[str, Any] = {"unit": unit, "count": self.count, "missing": self.missing}
        names = ("mae", "rmse", "max_error", "r2", "label_mean_absolute", "label_std")
        if self.count == 0:
            return metrics | dict.fromkeys(names)
        values = (
            self.absolute / self.count,
            sqrt(self.square / self.count),
            self.largest,
            1 - self.square / self.label_spread if self.label_spread > 0 else None,
            self.label_absolute / self.count,
            sqrt(self.label_spread / self.count),
        )
        return metrics | dict(zip(names, values, strict=True))
