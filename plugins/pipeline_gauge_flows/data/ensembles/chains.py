"""Several Markov chains in parallel, advanced by one update at a time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from pipeline_gauge_flows.data.actions import GaugeAction
from pipeline_gauge_flows.data.datasets import ActionOptions, HeatbathOptions, HmcOptions
from pipeline_gauge_flows.data.ensembles.hmc import HybridMonteCarlo, TimeScale
from pipeline_gauge_flows.data.ensembles.statistics import estimate
from pipeline_gauge_flows.data.ensembles.sweeps import Sweeps
from pipeline_gauge_flows.data.fermions.pseudofermions import split_action
from pipeline_gauge_flows.data.lattice import Lattice, draw_hot, make_cold
from pipeline_kernels.su3 import project

_REVERSED: Final = 10
"""Trajectories that are integrated backwards to check reversibility."""
_CHANCE: Final = 1e-4
"""Probability below which a run of rejected trajectories is not attributed to chance."""


def make_chains(
    action: ActionOptions, lattice: Lattice, options: HeatbathOptions | HmcOptions, n_updates: int
) -> HeatbathChains | HmcChains:
    """Return chains with their initial configurations, `links`, (chains, D, V, N, N) complex128.

    Args:
        action: Action that is sampled.
        lattice: The lattice.
        options: Options of the chains.
        n_updates: Number of updates after `begin`.
    """
    if isinstance(options, HeatbathOptions):
        return HeatbathChains(GaugeAction(action, lattice), options)
    return HmcChains(action, lattice, options, n_updates)


class HeatbathChains:
    """Markov chains by heat bath and overrelaxation.

    Args:
        action: A Wilson action.
        options: Options of the chains.
    """

    def __init__(self, action: GaugeAction, options: HeatbathOptions) -> None:
        self.links = _draw_start(action.lattice, options)
        self._overrelaxation = options.overrelaxation
        threads = torch.get_num_threads()
        self._sweeps = [Sweeps(action, options.seed, i, threads) for i in range(options.chains)]

    def update(self) -> None:
        """Make one heat-bath sweep of every chain, followed by overrelaxation."""
        for sweeps, links in zip(self._sweeps, self.links.numpy(), strict=True):
            sweeps.update_heatbath(links)
            for _ in range(self._overrelaxation):
                sweeps.update_overrelaxed(links)

    def begin(self) -> None:
        """Do nothing: every update is accepted."""

    def summarize(self) -> dict[str, Any]:
        """Return the acceptance."""
        return {"acceptance": 1.0}


class HmcChains:
    """Markov chains by Hybrid Monte Carlo, all in one batch.

    Args:
        action: Action that is sampled.
        lattice: The lattice.
        options: Options of the chains.
        n_updates: Number of updates after `begin`.
    """

    def __init__(
        self, action: ActionOptions, lattice: Lattice, options: HmcOptions, n_updates: int
    ) -> None:
        self.links = _draw_start(lattice, options)
        generator = torch.Generator().manual_seed(_derive_seed(options.seed, 1))
        scales = make_time_scales(action, lattice, options)
        self._sampler = HybridMonteCarlo(scales, options.tau, generator)
        self._every = max(1, n_updates // _REVERSED)
        self._forget()

    def begin(self) -> None:
        """Discard the statistics so far: all chains are thermalised.

        Raises:
            ValueError: A chain is stuck.
        """
        if self._accepted:
            refuse_stuck(torch.stack(self._accepted, dim=1))
        self._forget()

    def _forget(self) -> None:
        self._violations: list[Tensor] = []
        self._accepted: list[Tensor] = []
        self._irreversible: list[float] = []

    def update(self) -> None:
        """Integrate one trajectory of every chain."""
        if len(self._violations) % self._every == 0:
            self._irreversible.append(self._sampler.measure_irreversibility(self.links))
        trajectory = self._sampler.run_trajectory(self.links)
        self.links = project(trajectory.links)
        self._violations.append(trajectory.violation)
        self._accepted.append(trajectory.accepted)

    def summarize(self) -> dict[str, Any]:
        """Return acceptance, energy violation and reversibility of the updates since `begin`.

        Raises:
            ValueError: A chain is stuck.
        """
        violation = torch.stack(self._violations, dim=1)  # (chains, updates)
        accepted = torch.stack(self._accepted, dim=1)
        refuse_stuck(accepted)
        finite = torch.isfinite(violation)
        violations = torch.where(finite, violation, torch.zeros(())).numpy()
        weight = torch.where(finite, (-violation).exp(), torch.zeros(())).numpy()
        return {
            "acceptance": float(accepted.double().mean()),
            "energy_violation": {
                "mean": estimate(list(violations)).to_dict(),
                "largest": float(np.abs(violations).max()),
                "not_finite": int((~finite).sum()),
            },
            # Equal to 1 in equilibrium: Creutz, Phys. Rev. D 38, 1228 (1988).
            "exp_minus_violation": estimate(list(weight)).to_dict(),
            "irreversibility": max(self._irreversible),
        }


def refuse_stuck(accepted: Tensor) -> None:
    """Refuse chains that reject all trajectories while others accept some.

    Args:
        accepted: True for accepted trajectories, (chains, updates) bool.

    Raises:
        ValueError: A chain accepted none of them, with a probability too low for chance.
    """
    n_chains, n = accepted.shape
    stuck = (~accepted.any(dim=1)).nonzero().flatten().tolist()
    rate = float(accepted.double().mean())
    # An acceptance below a tenth is never intended: so chains that are all stuck are found, too.
    if stuck and n_chains * (1 - max(rate, 0.1)) ** n < _CHANCE:
        raise ValueError(
            f"generate: {len(stuck)} of {n_chains} chains accepted none of {n} trajectories, while "
            f"{rate:.0%} of all were; their steps are too long for their start: raise "
            "generate.n_steps"
        )


def make_time_scales(
    action: ActionOptions, lattice: Lattice, options: HmcOptions
) -> list[TimeScale]:
    """Return the terms of an action with their time scales, the fastest first."""
    terms = split_action(action, lattice, options.masses)
    if isinstance(options.n_steps, int):
        return [TimeScale(terms, options.n_steps)]
    return [TimeScale([term], n) for term, n in zip(terms, options.n_steps, strict=True)]


def _draw_start(lattice: Lattice, options: HeatbathOptions | HmcOptions) -> Tensor:
    if options.start == "cold":
        return make_cold(lattice, options.chains)
    generator = torch.Generator().manual_seed(_derive_seed(options.seed, 0))
    return draw_hot(lattice, options.chains, generator)


def _derive_seed(seed: int, use: int) -> int:
    """Return a separate seed for each use of random numbers."""
    return int(np.random.SeedSequence([seed, use]).generate_state(1, np.uint64)[0] >> 1)
