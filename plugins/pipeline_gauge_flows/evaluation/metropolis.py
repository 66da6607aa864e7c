"""The Markov chain whose proposals a flow draws, each independent of where the chain is.

A proposal U' is accepted with probability min(1, w(U') / w(U)), so that the chain has the
distribution exp(-S) / Z whatever the flow (Albergo, Kanwar and Shanahan, arXiv:1904.12072).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_gauge_flows.ensembles.statistics import estimate

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


class Acceptance:
    """The acceptance test, proposal by proposal.

    Args:
        seed: Of the random numbers.

    Attributes:
        log_weight: Of the configuration where the chain is; minus infinity before the first.
    """

    def __init__(self, seed: Sequence[int]) -> None:
        self._random = np.random.default_rng(seed)
        self.log_weight = -np.inf

    def accepts(self, log_weight: float) -> bool:
        """Return whether the chain moves to a proposal, having moved it."""
        draw = self._random.exponential()
        if log_weight - self.log_weight >= -draw:
            self.log_weight = log_weight
            return True
        return False


def chain_of(log_weight: Floats, seed: Sequence[int]) -> Numbers:
    """Return where the chain is after each proposal: the number of the proposal, (n,).

    Args:
        log_weight: Of the proposals in order, (n,).
        seed: Of the acceptance tests.
    """
    test, place = Acceptance(seed), 0
    places = np.empty(len(log_weight), dtype=np.int64)
    for number, one in enumerate(log_weight.tolist()):
        if test.accepts(one):
            place = number
        places[number] = place
    return places


def describe_chain(places: Numbers, observables: Mapping[str, Floats]) -> dict[str, Any]:
    """Return acceptance, autocorrelation and averages of a chain, JSON-able.

    Args:
        places: Where the chain is, as `chain_of` says.
        observables: Of the proposals, name -> (n,).
    """
    moved = np.diff(places) > 0
    stays = np.diff(np.flatnonzero(np.concatenate([[True], moved, [True]])))
    return {
        "acceptance": float(moved.mean()),
        "longest_stay": int(stays.max()),
        "observables": {
            name: estimate([values[places]]).content() for name, values in observables.items()
        },
    }
