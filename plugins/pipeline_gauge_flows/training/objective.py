"""Divergences between the density q of a flow and p = exp(-S) / Z, without the constant log Z.

| term                | mean of                                                                    |
|---------------------|----------------------------------------------------------------------------|
| `reverse_kl`        | log q + S over samples of the flow: KL(q, p) - log Z                       |
| `forward_kl`        | -log q over configurations of p: KL(p, q) + the entropy of p               |
| `weight`            | w exp(-c), with w = exp(-S) / q and a constant c near log Z                |
| `weight_square`     | its square; ESS = weight² / weight_square over samples of the flow         |
| `inverse_weight`    | its inverse; ESS = 1 / (weight inverse_weight) over configurations of p    |
| `log_weight`        | log w - c                                                                  |
| `log_weight_square` | its square, from which the variance of log w follows                       |

The first two are trained, the others have weight zero in the loss. Terms are sums over
configurations, so that an all-reduce over ranks gives the totals.
"""

from __future__ import annotations

from typing import Final, Literal

import torch
from torch import Tensor

from pipeline_core.batch import Batch
from pipeline_core.task import Outputs
from pipeline_gauge_flows.data.actions import WholeAction
from pipeline_gauge_flows.data.exact import expand_characters
from pipeline_gauge_flows.data.lattice import draw_hot

Kind = Literal["reverse_kl", "forward_kl"]

_MONITORS: Final[dict[Kind, tuple[str, ...]]] = {
    "reverse_kl": ("weight", "weight_square", "log_weight", "log_weight_square"),
    "forward_kl": ("weight", "inverse_weight", "log_weight", "log_weight_square"),
}
LARGEST_EXPONENT: Final = 300.0
"""Largest magnitude of log w - c in the exponential, whose square stays finite."""


def estimate_log_z(action: WholeAction) -> float:
    """Return a rough log Z: independent plaquettes with the coupling of each plane.

    Quarks add their action on random links.
    """
    lattice, gauge = action.lattice, action.gauge
    free = [expand_characters(float(weight), lattice.n_colours).a[0] for weight in gauge.weights]
    log_z = lattice.volume * float(torch.tensor(free).log().sum())
    if gauge is action:
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
        **dict.fromkeys(("weight", "weight_square", "log_weight", "log_weight_square"), 0.0),
    }

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Return the number of shots for each term."""
        return dict.fromkeys(self.weights, torch.tensor(batch["noise"].shape[:2].numel()))

    def sums(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """Return the sum of each term over the shots of a batch."""
        log_w = outputs["log_weight"].detach()
        w = log_w.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT).exp()
        return {
            "pseudofermion_kl": -outputs["log_weight"].sum(),
            "weight": w.sum(),
            "weight_square": w.square().sum(),
            "log_weight": log_w.sum(),
            "log_weight_square": log_w.square().sum(),
        }


class Divergence:
    """Loss of a flow, and monitors of its weights for the history.

    Outputs are from `GaugeModule`.

    Args:
        kind: Kind of divergence.
        action: S of the distribution that the flow leads to.
        base: S of the distribution that it starts from; None for the Haar measure.
        scale: The constant c.
    """

    def __init__(
        self, kind: Kind, action: WholeAction, base: WholeAction | None, scale: float
    ) -> None:
        self._kind, self._action, self._base, self._scale = kind, action, base, scale
        self.weights: dict[str, float] = {kind: 1.0, **dict.fromkeys(_MONITORS[kind], 0.0)}

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Return the number of configurations for each term."""
        return dict.fromkeys(self.weights, torch.tensor(len(batch["extents"])))

    def sums(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """Return the sum of each term over the configurations of a batch."""
        if self._kind == "reverse_kl":
            start, end = batch["base_links"], outputs["links"]
            log_q = self._log_base(start) - outputs["log_det"]
            loss = log_q + self._action(end)
            log_w = -loss.detach()
        else:
            start, end = outputs["links"], batch["target_links"]
            log_q = self._log_base(start) + outputs["log_det"]
            loss = -log_q
            log_w = -self._action(end) - log_q.detach()
        log_w = log_w - self._scale
        w = log_w.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT).exp()
        terms = {
            self._kind: loss,
            "weight": w,
            "weight_square": w.square(),
            "inverse_weight": 1 / w,
            "log_weight": log_w,
            "log_weight_square": log_w.square(),
        }
        return {name: terms[name].sum() for name in self.weights}

    def _log_base(self, links: Tensor) -> Tensor:
        """Return the log-density of the base distribution, up to a constant, (batch,)."""
        if self._base is None:
            return torch.zeros(len(links), dtype=torch.float64, device=links.device)
        return -self._base(links)
