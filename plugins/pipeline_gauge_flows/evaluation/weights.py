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
        ess: Effective sample size over the number of samples.
        log_z: Estimate of log Z.
        elbo: Lower bound of log Z.
        eubo: Upper bound of log Z, if averages with the weights are reliable.
        variance: Variance of log w.
        averages: Averages of the observables under p, by name.
    """

    def __init__(
        self,
        log_weight: Floats,
        observables: Mapping[str, Floats],
        n_resamples: int,
        seed: Sequence[int],
        blocks: Numbers | None = None,
    ) -> None:
        largest, middle = float(log_weight.max()), float(np.median(log_weight))
        weight, deviation = np.exp(log_weight - largest), log_weight - middle
        columns = {
            "w": weight,
            "w²": weight**2,
            "log w": deviation,
            "log² w": deviation**2,
            "w log w": weight * deviation,
            **{f"w {name}": weight * values for name, values in observables.items()},
        }
        means = Resampled(columns, n_resamples, seed, blocks)
        w = means["w"]
        self.ess: Floats = w**2 / means["w²"]
        self.log_z: Floats = np.log(w) + largest
        self.elbo: Floats = means["log w"] + middle
        self.eubo: Floats = means["w log w"] / w + middle
        self.variance: Floats = means["log² w"] - means["log w"] ** 2
        self.averages: dict[str, Floats] = {n: means[f"w {n}"] / w for n in observables}


class TargetEstimates:
    """Estimates from configurations of the target distribution of a flow.

    Args:
        log_weight: log w, (n,).
        n_resamples: Number of bootstrap resamples.
        seed: Seed of the bootstrap.
        blocks: See `Resampled`.

    Attributes:
        ess: Effective sample size over the number of samples that the flow would draw.
        log_z: Estimate of log Z.
        eubo: Upper bound of log Z.
    """

    def __init__(
        self,
        log_weight: Floats,
        n_resamples: int,
        seed: Sequence[int],
        blocks: Numbers | None = None,
    ) -> None:
        largest, least = float(log_weight.max()), float(log_weight.min())
        columns = {
            "w": np.exp(log_weight - largest),
            "1/w": np.exp(least - log_weight),
            "log w": log_weight,
        }
        means = Resampled(columns, n_resamples, seed, blocks)
        self.ess: Floats = np.exp(least - largest) / (means["w"] * means["1/w"])
        self.log_z: Floats = least - np.log(means["1/w"])
        self.eubo = means["log w"]
