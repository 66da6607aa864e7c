"""Effective sample sizes, partition functions and averages from weights.

With w = exp(-S) / q, q the density of the flow and p = exp(-S) / Z:

| quantity          | from samples of q                | from configurations of p          |
|-------------------|----------------------------------|-----------------------------------|
| ESS, Eq. 11       | <w>² / <w²>                      | 1 / (<w> <1/w>)                   |
| log Z             | log <w>                          | -log <1/w>                        |
| ELBO <= log Z     | <log w> = log Z - KL(q, p)       |                                   |
| EUBO >= log Z     | <w log w> / <w>, no strict bound | <log w> = log Z + KL(p, q)        |
| <O>               | <w O> / <w>                      | <O>                               |

Samples of q have no information about regions that the flow never reaches; configurations of p do.
Results are arrays (1 + n_resamples,), see `resampling`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline_gauge_flows.evaluation.resampling import Resampled

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


class FlowEstimates:
    """Estimates from samples of a flow.

    Args:
        log_weight: log w, (n,).
        observables: Name -> (n,).
        n_resamples: Number of bootstrap resamples.
        seed: Seed of the bootstrap.
        blocks: See `Resampled`.

    Attributes:
        observables: Names of the observables.
    """

    def __init__(
        self,
        log_weight: Floats,
        observables: Mapping[str, Floats],
        n_resamples: int,
        seed: Sequence[int],
        blocks: Numbers | None = None,
    ) -> None:
        self.observables = tuple(observables)
        self._largest, self._middle = float(log_weight.max()), float(np.median(log_weight))
        weight, deviation = np.exp(log_weight - self._largest), log_weight - self._middle
        columns = {
            "w": weight,
            "w²": weight**2,
            "log w": deviation,
            "log² w": deviation**2,
            "w log w": weight * deviation,
            **{f"w {name}": weight * values for name, values in observables.items()},
        }
        self._means = Resampled(columns, n_resamples, seed, blocks)

    @property
    def ess(self) -> Floats:
        """Effective sample size over the number of samples."""
        means = self._means
        ess: Floats = means["w"] ** 2 / means["w²"]
        return ess

    @property
    def log_z(self) -> Floats:
        """Estimate of log Z."""
        log_z: Floats = np.log(self._means["w"]) + self._largest
        return log_z

    @property
    def elbo(self) -> Floats:
        """Lower bound of log Z."""
        return self._means["log w"] + self._middle

    @property
    def eubo(self) -> Floats:
        """Upper bound of log Z, if averages with the weights are reliable."""
        eubo: Floats = self._means["w log w"] / self._means["w"] + self._middle
        return eubo

    @property
    def variance(self) -> Floats:
        """Variance of log w."""
        variance: Floats = self._means["log² w"] - self._means["log w"] ** 2
        return variance

    def average(self, name: str) -> Floats:
        """Average of an observable under p."""
        mean: Floats = self._means[f"w {name}"] / self._means["w"]
        return mean


class TargetEstimates:
    """Estimates from configurations of the target distribution of a flow.

    Args:
        log_weight: log w, (n,).
        n_resamples: Number of bootstrap resamples.
        seed: Seed of the bootstrap.
        blocks: See `Resampled`.
    """

    def __init__(
        self,
        log_weight: Floats,
        n_resamples: int,
        seed: Sequence[int],
        blocks: Numbers | None = None,
    ) -> None:
        self._largest, self._least = float(log_weight.max()), float(log_weight.min())
        columns = {
            "w": np.exp(log_weight - self._largest),
            "1/w": np.exp(self._least - log_weight),
            "log w": log_weight,
        }
        self._means = Resampled(columns, n_resamples, seed, blocks)

    @property
    def ess(self) -> Floats:
        """Effective sample size over the number of samples that the flow would draw."""
        product = self._means["w"] * self._means["1/w"]
        ess: Floats = np.exp(self._least - self._largest) / product
        return ess

    @property
    def log_z(self) -> Floats:
        """Estimate of log Z."""
        log_z: Floats = self._least - np.log(self._means["1/w"])
        return log_z

    @property
    def eubo(self) -> Floats:
        """Upper bound of log Z."""
        return self._means["log w"]
