"""Independence Metropolis chain with proposals of a flow.

A proposal U' is accepted with probability min(1, w(U') / w(U)), so that the chain has the
distribution exp(-S) / Z for any flow (Albergo, Kanwar and Shanahan, arXiv:1904.12072).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_gauge_flows.data.ensembles.statistics import estimate

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

_STUCK: Final = 0.05
"""Fraction of a chain's length above which a rejection run makes it unreliable."""
_FEW: Final = 5
"""Length of a rejection run that is always accepted."""
_UNKNOWN: Final = {"error": None, "tau_int": None, "tau_error": None}


class Acceptance:
    """Metropolis acceptance test, proposal by proposal.

    Args:
        seed: Seed of the random numbers.

    Attributes:
        log_weight: log w of the current configuration; minus infinity before the first.
    """

    def __init__(self, seed: Sequence[int]) -> None:
        self._random = np.random.default_rng(seed)
        self.log_weight = -np.inf
        self._steps, self._moves = 0, 0

    def step(self, log_weight: float) -> bool:
        """Accept or reject a proposal; return True if it was accepted."""
        draw = self._random.exponential()
        self._steps += 1
        if log_weight - self.log_weight >= -draw:
            self._moves += 1
            self.log_weight = log_weight
            return True
        return False

    @property
    def acceptance(self) -> float:
        """Fraction of accepted proposals, without the first."""
        return (self._moves - 1) / max(1, self._steps - 1)


def run_chain(log_weight: Floats, seed: Sequence[int]) -> Numbers:
    """Return the state of the chain after each proposal, as the number of a proposal, (n,).

    Args:
        log_weight: log w of the proposals in order, (n,).
        seed: Seed of the acceptance tests.
    """
    test, place = Acceptance(seed), 0
    places = np.empty(len(log_weight), dtype=np.int64)
    for number, one in enumerate(log_weight.tolist()):
        if test.step(one):
            place = number
        places[number] = place
    return places


def describe_chain(places: Numbers, observables: Mapping[str, Floats]) -> dict[str, Any]:
    """Return acceptance, autocorrelation and averages of a chain, JSON-able.

    Proposals are independent, so that the lengths of stays give the autocorrelation time
    of quantities independent of the weight: half the mean length of the stay that contains a step.
    It is a lower bound for the time estimated from the series of an observable, which a stuck chain
    underestimates. Errors and times are None if the chain was stuck for a large part of its length.

    Args:
        places: States of the chain, from `run_chain`.
        observables: Observables of the proposals, name -> (n,).
    """
    moved = np.diff(places) > 0
    stays = np.diff(np.flatnonzero(np.concatenate([[True], moved, [True]])))
    stuck = int(stays.max()) > max(_STUCK * len(places), _FEW)
    least = float(np.square(stays).sum() / (2 * len(places)))
    averages = {name: estimate([values[places]]).to_dict() for name, values in observables.items()}
    return {
        "acceptance": float(moved.mean()),
        "longest_stay": int(stays.max()),
        "observables": {
            name: {**one, **(_UNKNOWN if stuck else _bound_errors(one, least))}
            for name, one in averages.items()
        },
    }


def _bound_errors(average: Mapping[str, Any], least: float) -> dict[str, float]:
    """Return corrected time and error of an average with a time below `least`, else nothing."""
    tau = average["tau_int"]
    if tau is None or tau >= least:
        return {}
    return {"tau_int": least, "error": average["error"] * float(np.sqrt(least / tau))}
