"""Derivatives of expectation values by a parameter of the action (section 3 of arXiv:2502.00263).

With configurations U of the action S_1 at lambda_1, a flow f from there to S_2 at lambda_2, and
w = exp(-S_2(f(U)) + S_1(U) + log det f'):

| estimator            | d<O>/dlambda                                                             |
|----------------------|--------------------------------------------------------------------------|
| flow, Eqs. 12 and 13 | [<w O(f(U))> / <w> - <O(U)>] / (lambda_2 - lambda_1)                     |
| epsilon-reweighting  | the same with f = 1, at this step of lambda or at parts of it            |
| its limit            | -(<O C> - <O><C>), C = dS/dlambda                                        |
| independent          | [<O>_2 - <O>_1] / (lambda_2 - lambda_1) from two ensembles               |

Eq. 13 as printed lacks the denominator and takes w to be normalised. Actions are linear in lambda,
so that C = (S_2 - S_1) / (lambda_2 - lambda_1); by the anisotropy it is the operator of Eq. 16.
Differences equal the mean of the derivatives at both ends up to the square of the step; it is given
beside them. All are computed of the same resampled configurations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_gauge_flows.datasets import ActionOptions
from pipeline_gauge_flows.ensembles.statistics import ChainRows
from pipeline_gauge_flows.evaluation.resampling import (
    Resampled,
    Value,
    blocks_of,
    value_of,
)
from pipeline_gauge_flows.evaluation.series import END, START, Series, observed, part

Floats = NDArray[np.float64]

CONJUGATE: Final = "conjugate"
"""Name of C among the observables."""
PARAMETERS: Final = ("beta", "anisotropy")


@dataclass(frozen=True)
class Step:
    """A step of one parameter of the action.

    Attributes:
        parameter: Its name.
        start: lambda_1.
        end: lambda_2.
    """

    parameter: str
    start: float
    end: float

    @property
    def length(self) -> float:
        """lambda_2 - lambda_1."""
        return self.end - self.start


def step_between(base: ActionOptions, target: ActionOptions) -> Step:
    """Return the parameter in which two actions differ.

    Raises:
        ValueError: There is none, or more than one.
    """
    found = [name for name in PARAMETERS if getattr(base, name) != getattr(target, name)]
    if base.name != target.name or len(found) != 1:
        raise ValueError(
            f"infer.derivatives: the flow leads from {base!r} to {target!r}; a derivative needs "
            f"two actions that differ in one of {' and '.join(PARAMETERS)} alone"
        )
    (name,) = found
    return Step(name, getattr(base, name), getattr(target, name))


class Correlated:
    """Estimates of derivatives from configurations before and after a flow.

    Args:
        series: See `series.pushed`.
        step: Of the parameter.
        chains: Rows of each Markov chain among the configurations.
        fractions: Parts of the step at which epsilon-reweighting is tried.
        n_resamples: Of the bootstrap.
        seed: Of the bootstrap.

    Attributes:
        before: Observables of U, with `conjugate`; name -> (n,).
        after: Those of f(U).
        blocks: Number of the block of each configuration that is resampled, (n,).
    """

    def __init__(
        self,
        series: Series,
        step: Step,
        chains: ChainRows,
        fractions: Sequence[float],
        n_resamples: int,
        seed: Sequence[int],
    ) -> None:
        self.before, self.after = (_sides(series, prefix, step) for prefix in (START, END))
        self._step, self._fractions = step, sorted(fractions, reverse=True)
        watched = [self.before["plaquette"], self.before[CONJUGATE], series["log_weight"]]
        self.blocks = blocks_of(chains, watched, len(series["log_weight"]))
        self._means = Resampled(self._columns(series), n_resamples, seed, self.blocks)

    def report(self, name: str) -> dict[str, Any]:
        """Return all estimates of the derivative of one observable, JSON-able."""
        flow, ends = self.flow(name), (self.covariance(name, START), self.covariance(name, END))
        scan = {fraction: value_of(self.reweighted(name, fraction)) for fraction in self._fractions}
        same = value_of(self.reweighted(name, 1.0))
        limit, ours = value_of(ends[0]), value_of(flow)
        best = min({**scan, 0.0: limit}.items(), key=lambda item: item[1].error)
        middle = (ends[0] + ends[1]) / 2
        return {
            "flow": ours.content(),
            "epsilon_same_step": same.content(),
            "epsilon_limit": limit.content(),
            "epsilon_scan": [{"fraction": f, **one.content()} for f, one in scan.items()],
            "epsilon_best": {"fraction": best[0], **best[1].content()},
            "ends": {
                "start": limit.content(),
                "end": value_of(ends[1]).content(),
                "mean": value_of(middle).content(),
                "sigmas": value_of(flow - middle).sigmas(0.0),
            },
            "error_ratio": {
                "same_step": _ratio(same, ours),
                "best": _ratio(best[1], ours),
            },
        }

    def flow(self, name: str) -> Floats:
        """Return the flow's estimate of a derivative, (1 + n_resamples,)."""
        means = self._means
        difference = means[f"w {name}"] / means["w"] - means[name]
        found: Floats = difference / self._step.length
        return found

    def reweighted(self, name: str, fraction: float) -> Floats:
        """Return the estimate of epsilon-reweighting at a part of the step."""
        means = self._means
        weight = f"{fraction} w"
        difference = means[f"{weight} {name}"] / means[weight] - means[name]
        found: Floats = difference / (fraction * self._step.length)
        return found

    def covariance(self, name: str, end: str) -> Floats:
        """Return the derivative at one end of the step as a covariance with C."""
        means = self._means
        if end == START:
            mean, other = means[name], means[CONJUGATE]
            product = means[f"{name} C"]
        else:
            mean, other = (means[f"w {one}"] / means["w"] for one in (name, CONJUGATE))
            product = means[f"w {name} C"] / means["w"]
        found: Floats = mean * other - product
        return found

    def _columns(self, series: Series) -> dict[str, Floats]:
        weight = _weights(series["log_weight"])
        columns = {"w": weight}
        identity = series["log_weight_identity"]
        small = {f: _weights(f * identity) for f in {1.0, *self._fractions}}
        columns |= {f"{f} w": one for f, one in small.items()}
        c, c_after = self._deviations(CONJUGATE)
        for name in self.before:
            before, after = self._deviations(name)
            columns |= {name: before, f"{name} C": before * c, f"w {name}": weight * after}
            columns[f"w {name} C"] = weight * after * c_after
            columns |= {f"{f} w {name}": one * before for f, one in small.items()}
        return columns

    def _deviations(self, name: str) -> tuple[Floats, Floats]:
        """Return an observable at both ends less one constant, so that differences keep digits."""
        middle = self.before[name].mean()
        return self.before[name] - middle, self.after[name] - middle


def independent(first: Value, second: Value, step: Step) -> Value:
    """Return the derivative from averages of two independent ensembles, at start and end."""
    error = float(np.hypot(first.error, second.error)) / abs(step.length)
    return Value((second.value - first.value) / step.length, error)


def _sides(series: Series, prefix: str, step: Step) -> dict[str, Floats]:
    columns = part(series, prefix)
    conjugate = (columns["target"] - columns["base"]) / step.length
    return {CONJUGATE: conjugate} | {name: columns[name] for name in observed(columns)}


def _weights(log_weight: Floats) -> Floats:
    found: Floats = np.exp(log_weight - log_weight.max())
    return found


def _ratio(theirs: Value, ours: Value) -> float | None:
    return theirs.error / ours.error if ours.error > 0 else None
