"""Divergence between the density q of a flow and p = exp(-S) / Z, without the constant log Z.

| term                | mean over samples of the flow of                                           |
|---------------------|----------------------------------------------------------------------------|
| `reverse_kl`        | log q + S: KL(q, p) - log Z                                                |
| `weight`            | w exp(-c), with w = exp(-S) / q and a constant c near log Z                |
| `weight_square`     | its square; ESS = weight² / weight_square                                  |
| `log_weight`        | log w - c                                                                  |
| `log_weight_square` | its square, from which the variance of log w follows                       |

The first is trained, the others have weight zero in the loss. Terms are sums over
configurations, so that an all-reduce over ranks gives the totals.
"""

from typing import Final

import torch
from torch import Tensor

from pipeline_core.batch import Batch
from pipeline_core.task import Outputs
from pipeline_gauge_flows.data.exact import expand_characters
from pipeline_gauge_flows.data.fermions.effective import EffectiveAction
from pipeline_gauge_flows.data.lattice import draw_hot

_MONITORS: Final = ("weight", "weight_square", "log_weight", "log_weight_square")
LARGEST_EXPONENT: Final = 300.0
"""Largest magnitude of log w - c in the exponential, whose square stays finite."""


def estimate_log_z(action: EffectiveAction) -> float:
    """Return a rough log Z: independent plaquettes with the coupling of each plane.

    Quarks add their action on random links.
    """
    lattice, gauge = action.lattice, action.gauge
    free = [expand_characters(float(weight), lattice.n_colours).a[0] for weight in gauge.weights]
    log_z = lattice.volume * float(torch.tensor(free).log().sum())
    if action.options.fermions is None:
        return log_z
    links = draw_hot(lattice, 1, torch.Generator().manual_seed(0))
    return log_z + float(gauge(links) - action(links))


class PseudofermionDivergence:
    """Loss of a flow of pseudofermions: the mean of -log w over configurations and shots.

    It is KL(q, p) given the links, less the logarithm of the ratio of determinants, which does not
    depend on the flow. Outputs are from `ConditionalModule`.
    """

    weights: Final[dict[str, float]] = {
        "pseudofermion_kl": 1.0,
        **dict.fromkeys(_MONITORS, 0.0),
    }

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Return the number of shots for each term."""
        return dict.fromkeys(self.weights, torch.tensor(batch["noise"].shape[:2].numel()))

    def sums(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """Return the sum of each term over the shots of a batch."""
        log_weight = outputs["log_weight"]
        return {"pseudofermion_kl": -log_weight.sum(), **_sum_monitors(log_weight.detach())}


class Divergence:
    """Loss of a flow, and monitors of its weights for the history.

    Outputs are from `GaugeModule`.

    Args:
        action: S of the distribution that the flow leads to.
        base: S of the distribution that it starts from; None for the Haar measure.
        scale: The constant c.
    """

    weights: Final[dict[str, float]] = {"reverse_kl": 1.0, **dict.fromkeys(_MONITORS, 0.0)}

    def __init__(self, action: EffectiveAction, base: EffectiveAction | None, scale: float) -> None:
        self._action, self._base, self._scale = action, base, scale

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Return the number of configurations for each term."""
        return dict.fromkeys(self.weights, torch.tensor(len(batch["extents"])))

    def sums(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """Return the sum of each term over the configurations of a batch."""
        log_q = -outputs["log_det"]
        if self._base is not None:
            log_q = -self._base(batch["base_links"]) + log_q
        loss = log_q + self._action(outputs["links"])
        return {"reverse_kl": loss.sum(), **_sum_monitors(-loss.detach() - self._scale)}


def _sum_monitors(log_w: Tensor) -> dict[str, Tensor]:
    w = log_w.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT).exp()
    terms = (w, w.square(), log_w, log_w.square())
    return {name: term.sum() for name, term in zip(_MONITORS, terms, strict=True)}
