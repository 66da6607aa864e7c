"""Trained flows, and their samples with weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline_core.evaluation.trained import trained_task
from pipeline_core.run import Run
from pipeline_gauge_flows.actions import GaugeAction
from pipeline_gauge_flows.flow import Flow
from pipeline_gauge_flows.lattice import hot
from pipeline_gauge_flows.network import GaugeModule


@dataclass(frozen=True)
class Proposals:
    """Configurations that a flow has made.

    Attributes:
        links: (n, D, V, N, N).
        log_q: Log-density of the flow, up to the log Z of what it starts from, (n,) float64.
        action: S, (n,) float64.
    """

    links: Tensor
    log_q: Tensor
    action: Tensor

    @property
    def log_weight(self) -> Tensor:
        """Logarithm of w = exp(-S) / q, (n,): its mean is at most log Z, the mean of w is Z.

        Between two couplings Z stands for the ratio of two.
        """
        return -self.action - self.log_q


def trained_flow(run: Run, device: torch.device, dtype: torch.dtype = torch.float64) -> Flow:
    """Return the flow of a trained run, on the lattice that it was trained on.

    Args:
        run: The run.
        device: Where to.
        dtype: Of its weights; links of the complex type of this width fit to it.

    Raises:
        ValueError: The model is missing or damaged, or not that of this run.
    """
    module = trained_task(run, device).module
    assert isinstance(module, GaugeModule)
    flow = module.flow.to(dtype)
    return flow.requires_grad_(False)


def push(
    flow: Flow, links: Tensor, action: GaugeAction, base: GaugeAction | None = None
) -> Proposals:
    """Return what a flow makes of configurations.

    Args:
        flow: The flow.
        links: Configurations of the distribution that it starts from, (n, D, V, N, N).
        action: S of the distribution that it leads to, on the lattice of the flow.
        base: S of that where it starts; None for the Haar measure.
    """
    with torch.no_grad():
        moved, log_det = flow(links)
        log_base = -base(links) if base is not None else torch.zeros_like(log_det)
        return Proposals(moved, log_base - log_det, action(moved))


def draw(
    flow: Flow,
    action: GaugeAction,
    n_samples: int,
    generator: torch.Generator,
    batch_size: int = 256,
) -> Iterator[Proposals]:
    """Draw independent configurations from a flow of the Haar measure, batch by batch.

    Args:
        flow: The flow.
        action: S, on the lattice of the flow.
        n_samples: Configurations altogether.
        generator: On the CPU.
        batch_size: Configurations of a batch.
    """
    weight = next(flow.parameters())
    for start in range(0, n_samples, batch_size):
        n = min(batch_size, n_samples - start)
        links = hot(flow.lattice, n, generator, weight.dtype.to_complex())
        yield push(flow, links.to(weight.device), action)


def log_density(flow: Flow, links: Tensor, base: GaugeAction | None = None) -> Tensor:
    """Return log q of configurations, (n,), up to the log Z of what the flow starts from.

    Args:
        flow: The flow.
        links: (n, D, V, N, N).
        base: S of the distribution that the flow starts from; None for the Haar measure.
    """
    with torch.no_grad():
        start, log_det = flow.inverse(links)
        return log_det if base is None else log_det - base(start)
