"""Proposals of a flow, and their weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline_gauge_flows.data.actions import WholeAction
from pipeline_gauge_flows.model.flow import Flow


@dataclass(frozen=True)
class Proposals:
    """Configurations proposed by a flow.

    Attributes:
        links: (n, D, V, N, N).
        log_q: Log-density of the flow, up to the log Z of its base distribution, (n,) float64.
        action: S, (n,) float64.
    """

    links: Tensor
    log_q: Tensor
    action: Tensor

    @property
    def log_weight(self) -> Tensor:
        """Logarithm of w = exp(-S) / q, (n,); its mean is at most log Z, the mean of w is Z.

        For a flow between two actions Z is the ratio of their partition functions.
        """
        return -self.action - self.log_q


def push(
    flow: Flow, links: Tensor, action: WholeAction, base: WholeAction | None = None
) -> Proposals:
    """Map configurations by a flow; return the proposals with their weights.

    Args:
        flow: The flow.
        links: Configurations of the distribution that it starts from, (n, D, V, N, N).
        action: S of the target distribution, on the lattice of the flow.
        base: S of the base distribution; None for the Haar measure.
    """
    with torch.no_grad():
        moved, log_det = flow(links)
        log_base = -base(links) if base is not None else torch.zeros_like(log_det)
        return Proposals(moved, log_base - log_det, action(moved))


def compute_log_density(flow: Flow, links: Tensor, base: WholeAction | None = None) -> Tensor:
    """Return log q of configurations, (n,), up to the log Z of the flow's base distribution.

    Args:
        flow: The flow.
        links: (n, D, V, N, N).
        base: S of the distribution that the flow starts from; None for the Haar measure.
    """
    with torch.no_grad():
        start, log_det = flow.inverse(links)
        return log_det if base is None else log_det - base(start)
