"""Derivatives of expectation values by a parameter of the action (section 3 of arXiv:2502.00263).

With configurations U of the action S_1 at lambda_1, a flow f to S_2 at lambda_2, and
w = exp(-S_2(f(U)) + S_1(U) + log det f'):

| estimator            | d<O>/dlambda                                                             |
|----------------------|--------------------------------------------------------------------------|
| flow, Eqs. 12 and 13 | [<w O(f(U))> / <w> - <O(U)>] / (lambda_2 - lambda_1)                     |
| epsilon-reweighting  | the same with f = 1, at this step of lambda or at fractions of it        |
| its limit            | -(<O C> - <O><C>), C = dS/dlambda                                        |
| independent          | [<O>_2 - <O>_1] / (lambda_2 - lambda_1) from two ensembles               |

<O> may be replaced by a function of averages, such as the mass of a hadron (`masses`).
Eq. 13 as printed lacks the denominator and assumes a normalised w. Actions are linear in beta and
in the anisotropy, so that C = (S_2 - S_1) / (lambda_2 - lambda_1); for the anisotropy it is the
operator of Eq. 16. For quark parameters C is the same quotient, with an error linear in the step.
Differences equal the mean of the derivatives at both ends up to the square of the step; the mean is
reported, too. All are computed from the same resampled configurations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_gauge_flows.data.datasets import ActionOptions
from pipeline_gauge_flows.data.ensembles.statistics import ChainRows
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
from pipeline_gauge_flows.inference.masses import CORRELATOR, LogMass, MassFit

Floats = NDArray[np.float64]

CONJUGATE: Final = "conjugate"
"""Name of C among the observables."""
PARAMETERS: Final = ("beta", "anisotropy", "kappa", "two_kappa_mu")
FRACTIONS: Final = (1.0, 0.5, 0.25, 0.125, 0.0625)
"""Fractions of the step at which epsilon-reweighting is tried, besides its limit of zero."""
_SMALL_PART: Final = 1e-2
"""Fraction of the step for numerical derivatives of functions of averages."""


@dataclass(frozen=True)
class Step:
    """Step of one parameter of the action.

    Attributes:
        parameter: Name of the parameter.
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
        ValueError: They differ in none, or in more than one.
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
    """Return the parameters of an action, including those of its quarks."""
    content = action.model_dump()
    quarks = content.pop("fermions")
    return content | (quarks or {})


class DerivativeEstimates:
    """Estimates of derivatives from configurations before and after a flow.

    Args:
        series: See `series.map_ensemble`.
        step: Step of the parameter.
        chains: Rows of each Markov chain among the configurations.
        n_resamples: Number of bootstrap resamples.
        seed: Seed of the bootstrap.

    Attributes:
        before: Observables of U, with `conjugate`; name -> (n,).
        after: Observables of f(U).
        functions: Functions of the averages, which are differentiated like observables.
        blocks: Number of the block of each configuration that is resampled, (n,).
    """

    def __init__(
        self,
        series: Series,
        step: Step,
        chains: ChainRows,
        n_resamples: int,
        seed: Sequence[int],
    ) -> None:
        self.before, self.after = (
            name_columns(select_prefix(series, prefix), step) for prefix in (START, END)
        )
        self.functions: dict[str, MassFit | LogMass] = {}
        self._averages: dict[tuple[str, str], Floats] = {}
        self._step = step
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
            for fraction in FRACTIONS
        }
        same = compute_value(self.estimate_by_epsilon(name, 1.0))
        limit, ours = compute_value(ends[0]), compute_value(flow)
        best = min({**scan, 0.0: limit}.items(), key=_get_error)
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

    @property
    def names(self) -> list[str]:
        """Names of all differentiated observables and functions."""
        return [*self.before, *self.functions]

    def average(self, name: str, weight: str = "") -> Floats:
        """Return an average, or a function of averages, (1 + n_resamples,).

        Args:
            name: Name of the observable or the function.
            weight: Empty for U; `w ` for f(U) with its weight; `<fraction> w ` for U with the
                weight of a fraction of the step.
        """
        if name in self.functions:
            if (name, weight) not in self._averages:
                function = self.functions[name]
                means = np.stack([self.average(one, weight) for one in function.inputs], 1)
                self._averages[name, weight] = function(means)
            return self._averages[name, weight]
        mean = self._means[f"{weight}{name}"]
        whole: Floats = self._middles[name] + (mean / self._means[weight[:-1]] if weight else mean)
        return whole

    def flow_derivative(self, name: str) -> Floats:
        """Return the flow's estimate of a derivative, (1 + n_resamples,)."""
        derivative: Floats = self._subtract_start(name, "w ") / self._step.length
        return derivative

    def estimate_by_epsilon(self, name: str, fraction: float) -> Floats:
        """Return the estimate of epsilon-reweighting at a fraction of the step."""
        difference = self._subtract_start(name, f"{fraction} w ")
        derivative: Floats = difference / (fraction * self._step.length)
        return derivative

    def estimate_covariance(self, name: str, end: str) -> Floats:
        """Return the derivative at one end of the step as a covariance with C."""
        if name in self.functions:
            return self._differentiate_along(self.functions[name], end)
        means = self._means
        if end == START:
            mean, other = means[name], means[CONJUGATE]
            product = means[f"{name} C"]
        else:
            mean, other = (means[f"w {one}"] / means["w"] for one in (name, CONJUGATE))
            product = means[f"w {name} C"] / means["w"]
        derivative: Floats = mean * other - product
        return derivative

    def linearise(self, columns: Mapping[str, Floats]) -> dict[str, Floats]:
        """Return columns whose averages are the functions of the averages of other columns.

        Their fluctuations equal the fluctuations of the functions to first order.
        """
        linear = dict(columns)
        for name, function in self.functions.items():
            rows = np.stack([linear[one] for one in function.inputs], axis=1)
            linear[name] = function(np.concatenate([rows.mean(0, keepdims=True), rows]))[1:]
        return {name: linear[name] for name in self.functions}

    def _subtract_start(self, name: str, weight: str) -> Floats:
        """Return a weighted average less the average of U."""
        if name in self.functions:
            return self.average(name, weight) - self.average(name)
        means = self._means
        difference: Floats = means[f"{weight}{name}"] / means[weight[:-1]] - means[name]
        return difference

    def _differentiate_along(self, function: MassFit | LogMass, end: str) -> Floats:
        """Return the derivative of a function of averages by the chain rule."""
        weight = "" if end == START else "w "
        means = np.stack([self.average(one, weight) for one in function.inputs], 1)
        slopes = np.stack([self.estimate_covariance(one, end) for one in function.inputs], 1)
        length = _SMALL_PART * self._step.length
        ahead, behind = function(means + length * slopes), function(means - length * slopes)
        derivative: Floats = (ahead - behind) / (2 * length)
        return derivative

    def _make_columns(self, series: Series) -> dict[str, Floats]:
        weight = _compute_weights(series["log_weight"])
        columns = {"w": weight}
        identity = series["log_weight_identity"]
        small = {f: _compute_weights(f * identity) for f in FRACTIONS}
        columns |= {f"{f} w": one for f, one in small.items()}
        # Less the same constant at both ends, so that differences keep digits.
        self._middles = {name: float(values.mean()) for name, values in self.before.items()}
        c, c_after = self._center(CONJUGATE)
        for name in self.before:
            before, after = self._center(name)
            columns |= {name: before, f"{name} C": before * c, f"w {name}": weight * after}
            columns[f"w {name} C"] = weight * after * c_after
            columns |= {f"{f} w {name}": one * before for f, one in small.items()}
        return columns

    def _center(self, name: str) -> tuple[Floats, Floats]:
        """Return an observable at both ends less a constant."""
        middle = self._middles[name]
        return self.before[name] - middle, self.after[name] - middle


def compute_independent(first: Value, second: Value, step: Step) -> Value:
    """Return the derivative from averages of two independent ensembles at start and end."""
    error = float(np.hypot(first.error, second.error)) / abs(step.length)
    return Value((second.value - first.value) / step.length, error)


def name_columns(columns: Mapping[str, Floats], step: Step) -> dict[str, Floats]:
    """Return the scalar observables of configurations, preceded by C and followed by slices.

    Args:
        columns: Both actions and the measurements, (n, ...).
        step: Step between the actions.
    """
    named = {CONJUGATE: (columns["target"] - columns["base"]) / step.length}
    named |= {name: columns[name] for name in list_observables(dict(columns))}
    slices = columns.get(CORRELATOR)
    if slices is not None:
        named |= {f"{CORRELATOR}_{t}": column for t, column in enumerate(slices.T)}
    return named


def _get_error(item: tuple[float, Value]) -> float:
    error = item[1].error
    return error if np.isfinite(error) else np.inf


def _compute_weights(log_weight: Floats) -> Floats:
    weights: Floats = np.exp(log_weight - log_weight.max())
    return weights


def _divide_errors(theirs: Value, ours: Value) -> float | None:
    return theirs.error / ours.error if ours.error > 0 else None
