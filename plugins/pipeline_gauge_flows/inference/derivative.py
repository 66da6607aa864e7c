"""Derivatives of expectation values by a parameter of the action (section 3 of arXiv:2502.00263).

With configurations U of the action S_1 at lambda_1, a flow f from there to S_2 at lambda_2, and
w = exp(-S_2(f(U)) + S_1(U) + log det f'):

| estimator            | d<O>/dlambda                                                             |
|----------------------|--------------------------------------------------------------------------|
| flow, Eqs. 12 and 13 | [<w O(f(U))> / <w> - <O(U)>] / (lambda_2 - lambda_1)                     |
| epsilon-reweighting  | the same with f = 1, at this step of lambda or at parts of it            |
| its limit            | -(<O C> - <O><C>), C = dS/dlambda                                        |
| independent          | [<O>_2 - <O>_1] / (lambda_2 - lambda_1) from two ensembles               |

Eq. 13 as printed lacks the denominator and takes w to be normalised. Actions are linear in beta and
in the anisotropy, so that C = (S_2 - S_1) / (lambda_2 - lambda_1); by the anisotropy it is the
operator of Eq. 16. By parameters of quarks C is that quotient, too: up to the step.
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
    compute_value,
    make_blocks,
)
from pipeline_gauge_flows.evaluation.series import (
    END,
    START,
    Series,
    list_observables,
    select_prefix,
)

Floats = NDArray[np.float64]

CONJUGATE: Final = "conjugate"
"""Name of C among the observables."""
PARAMETERS: Final = ("beta", "anisotropy", "kappa", "two_kappa_mu")


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


def find_step(base: ActionOptions, target: ActionOptions) -> Step:
    """Return the parameter in which two actions differ.

    Raises:
        ValueError: There is none, or more than one.
    """
    old, new = _list_parameters(base), _list_parameters(target)
    differing = [name for name in old if new.get(name) != old[name]]
    if old.keys() != new.keys() or len(differing) != 1 or differing[0] not in PARAMETERS:
        raise ValueError(
            f"infer.derivatives: the flow leads from {base!r} to {target!r}; a derivative needs "
            f"two actions that differ in one of {', '.join(PARAMETERS)} alone"
        )
    (name,) = differing
    return Step(name, old[name], new[name])


def _list_parameters(action: ActionOptions) -> dict[str, Any]:
    """Return what an action is, those of its quarks among the others."""
    content = action.model_dump()
    quarks = content.pop("fermions")
    return content | (quarks or {})


class DerivativeEstimates:
    """Estimates of derivatives from configurations before and after a flow.

    Args:
        series: See `series.map_ensemble`.
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
        self.before, self.after = (_select_side(series, prefix, step) for prefix in (START, END))
        self._step, self._fractions = step, sorted(fractions, reverse=True)
        watched = [self.before["plaquette"], self.before[CONJUGATE], series["log_weight"]]
        self.blocks = make_blocks(chains, watched, len(series["log_weight"]))
        self._means = Resampled(self._make_columns(series), n_resamples, seed, self.blocks)

    def report(self, name: str) -> dict[str, Any]:
        """Return all estimates of the derivative of one observable, JSON-able."""
        flow, ends = (
            self.flow_derivative(name),
            (self.estimate_covariance(name, START), self.estimate_covariance(name, END)),
        )
        scan = {
            fraction: compute_value(self.estimate_by_epsilon(name, fraction))
            for fraction in self._fractions
        }
        same = compute_value(self.estimate_by_epsilon(name, 1.0))
        limit, ours = compute_value(ends[0]), compute_value(flow)
        best = min({**scan, 0.0: limit}.items(), key=lambda item: item[1].error)
        middle = (ends[0] + ends[1]) / 2
        return {
            "flow": ours.to_dict(),
            "epsilon_same_step": same.to_dict(),
            "epsilon_limit": limit.to_dict(),
            "epsilon_scan": [{"fraction": f, **one.to_dict()} for f, one in scan.items()],
            "epsilon_best": {"fraction": best[0], **best[1].to_dict()},
            "ends": {
                "start": limit.to_dict(),
                "end": compute_value(ends[1]).to_dict(),
                "mean": compute_value(middle).to_dict(),
                "sigmas": compute_value(flow - middle).measure_distance(0.0),
            },
            "error_ratio": {
                "same_step": _divide_errors(same, ours),
                "best": _divide_errors(best[1], ours),
            },
        }

    def flow_derivative(self, name: str) -> Floats:
        """Return the flow's estimate of a derivative, (1 + n_resamples,)."""
        means = self._means
        difference = means[f"w {name}"] / means["w"] - means[name]
        derivative: Floats = difference / self._step.length
        return derivative

    def estimate_by_epsilon(self, name: str, fraction: float) -> Floats:
        """Return the estimate of epsilon-reweighting at a part of the step."""
        means = self._means
        weight = f"{fraction} w"
        difference = means[f"{weight} {name}"] / means[weight] - means[name]
        derivative: Floats = difference / (fraction * self._step.length)
        return derivative

    def estimate_covariance(self, name: str, end: str) -> Floats:
        """Return the derivative at one end of the step as a covariance with C."""
        means = self._means
        if end == START:
            mean, other = means[name], means[CONJUGATE]
            product = means[f"{name} C"]
        else:
            mean, other = (means[f"w {one}"] / means["w"] for one in (name, CONJUGATE))
            product = means[f"w {name} C"] / means["w"]
        derivative: Floats = mean * other - product
        return derivative

    def _make_columns(self, series: Series) -> dict[str, Floats]:
        weight = _compute_weights(series["log_weight"])
        columns = {"w": weight}
        identity = series["log_weight_identity"]
        small = {f: _compute_weights(f * identity) for f in {1.0, *self._fractions}}
        columns |= {f"{f} w": one for f, one in small.items()}
        c, c_after = self._center(CONJUGATE)
        for name in self.before:
            before, after = self._center(name)
            columns |= {name: before, f"{name} C": before * c, f"w {name}": weight * after}
            columns[f"w {name} C"] = weight * after * c_after
            columns |= {f"{f} w {name}": one * before for f, one in small.items()}
        return columns

    def _center(self, name: str) -> tuple[Floats, Floats]:
        """Return an observable at both ends less one constant, so that differences keep digits."""
        middle = self.before[name].mean()
        return self.before[name] - middle, self.after[name] - middle


def compute_independent(first: Value, second: Value, step: Step) -> Value:
    """Return the derivative from averages of two independent ensembles, at start and end."""
    error = float(np.hypot(first.error, second.error)) / abs(step.length)
    return Value((second.value - first.value) / step.length, error)


def _select_side(series: Series, prefix: str, step: Step) -> dict[str, Floats]:
    columns = select_prefix(series, prefix)
    conjugate = (columns["target"] - columns["base"]) / step.length
    return {CONJUGATE: conjugate} | {name: columns[name] for name in list_observables(columns)}


def _compute_weights(log_weight: Floats) -> Floats:
    weights: Floats = np.exp(log_weight - log_weight.max())
    return weights


def _divide_errors(theirs: Value, ours: Value) -> float | None:
    return theirs.error / ours.error if ours.error > 0 else None
