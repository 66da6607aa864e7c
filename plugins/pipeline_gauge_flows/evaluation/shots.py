"""Ratios of determinants from noise shots, and the resulting effective sample size.

With r = w |det M|^2 / |det M'|^2, w from `fermions.shots` and exact determinants,

| quantity             | of configurations i and shots k                                        |
|----------------------|------------------------------------------------------------------------|
| mean                 | <r>, which is 1                                                        |
| ESS given the links  | <r>^2 / <r^2>                                                          |
| ESS of n shots       | <W>^2 / <W^2>, W_i = w_i times the mean of r over n shots of i         |

where w_i is the weight of the flow of links with exact determinants. All groups of n shots count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pipeline_gauge_flows.data.ensembles.statistics import ChainRows
from pipeline_gauge_flows.data.fermions.effective import EffectiveAction
from pipeline_gauge_flows.evaluation.resampling import (
    Resampled,
    Value,
    compute_value,
    make_blocks,
)
from pipeline_gauge_flows.evaluation.series import END, START, Series
from pipeline_gauge_flows.model.network import ConditionalModule
from pipeline_gauge_flows.model.pseudofermion_shots import draw_noise, make_operators, weigh_shots

Floats = NDArray[np.float64]

KINDS = ("flow", "identity")


@dataclass(frozen=True)
class NoiseShots:
    """Noise shots of configurations, with and without a flow of pseudofermions.

    Attributes:
        module: Flows of links and of pseudofermions.
        actions: Actions before and after the flow of links.
        n_shots: Shots per configuration.
        seed: Seed of the noise, to which the number of the configuration is added.
    """

    module: ConditionalModule
    actions: tuple[EffectiveAction, EffectiveAction]
    n_shots: int
    seed: tuple[int, ...]

    def __call__(self, numbers: Sequence[int], links: Tensor, moved: Tensor) -> dict[str, Tensor]:
        """Return columns for `series.map_ensemble`: log w of shots, and actions of gauge fields."""
        base, target = self.actions
        lattice = base.lattice
        operators = make_operators(links, moved, lattice, self.module.quarks)
        chi = draw_noise(lattice, self.n_shots, [(*self.seed, n) for n in numbers])
        chi = chi.to(links.device)
        return {
            "shots:flow": weigh_shots(self.module.pseudofermions, chi, operators, lattice),
            "shots:identity": weigh_shots(None, chi, operators, lattice),
            f"{START}gauge": base.gauge(links),
            f"{END}gauge": target.gauge(moved),
        }


def report_shots(
    series: Series, chains: ChainRows, n_resamples: int, seed: Sequence[int]
) -> dict[str, Any]:
    """Report on noise shots, JSON-able.

    Args:
        series: Series of `series.map_ensemble` with `NoiseShots`.
        chains: Rows of each Markov chain.
        n_resamples: Number of bootstrap resamples.
        seed: Seed of the bootstrap.
    """
    exact = (series[f"{START}base"] - series[f"{START}gauge"]) - (
        series[f"{END}target"] - series[f"{END}gauge"]
    )
    ratios = {kind: np.exp(series[f"shots:{kind}"] - exact[:, None]) for kind in KINDS}
    weight = np.exp(series["log_weight"] - series["log_weight"].max())
    n_shots = ratios["flow"].shape[1]
    counts = [2**k for k in range(n_shots.bit_length())]
    columns = {f"{kind} r": r.mean(1) for kind, r in ratios.items()}
    columns |= {f"{kind} r²": (r**2).mean(1) for kind, r in ratios.items()}
    for kind, r in ratios.items():
        for n in counts:
            columns |= _average_groups(f"{kind} {n}", weight, r, n)
    blocks = make_blocks(chains, [series["log_weight"], columns["flow r"]], len(weight))
    means = Resampled(columns, n_resamples, seed, blocks)
    given = {kind: means[f"{kind} r"] ** 2 / means[f"{kind} r²"] for kind in KINDS}
    return {
        "n_shots": n_shots,
        "mean": {kind: compute_value(means[f"{kind} r"]).to_dict() for kind in KINDS},
        "given_links": _compare(given),
        "by_shots": [{"shots": n, **_compare(_compute_ess(means, n))} for n in counts],
    }


def _average_groups(name: str, weight: Floats, ratios: Floats, n: int) -> Mapping[str, Floats]:
    """Return the averages of W and W² over groups of n shots, (n_configurations,) each."""
    n_groups = ratios.shape[1] // n
    groups = ratios[:, : n_groups * n].reshape(len(ratios), n_groups, n).mean(2)
    total = weight[:, None] * groups
    return {f"{name} W": total.mean(1), f"{name} W²": (total**2).mean(1)}


def _compute_ess(means: Resampled, n: int) -> dict[str, Floats]:
    return {kind: means[f"{kind} {n} W"] ** 2 / means[f"{kind} {n} W²"] for kind in KINDS}


def _compare(ess: Mapping[str, Floats]) -> dict[str, Any]:
    """Return both effective sample sizes and their difference, from the same noise."""
    gain: Value = compute_value(ess["flow"] - ess["identity"])
    return {
        **{kind: compute_value(ess[kind]).to_dict() for kind in KINDS},
        "gain": gain.to_dict(),
        "gain_sigmas": gain.measure_distance(0.0),
    }
