"""Gradient steps over points that stay in memory, with the analytic gradient of the tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from pipeline_core.project.run import Run
from pipeline_htfbr.training.fit import Method, train_by_gradients
from pipeline_htfbr.training.shares import Plan, Step, Steps, StepShare
from pipeline_htfbr.training.tabulated import Table


def train_resident(run: Run) -> dict[str, Any]:
    """Fit the surface of a run; see `train_by_gradients`."""
    return train_by_gradients(run, Method(select_steps, lambda module: module.evaluate_table))


def select_steps(table: Table, plan: Plan, device: torch.device) -> Steps:
    """Keep points on the device: for full batches only the points of this rank."""
    if plan.is_full:
        fixed = list(_select(table, plan.plan_epoch(0), device))
        return lambda epoch: fixed
    whole = table.to(device)
    return lambda epoch: _select(whole, plan.plan_epoch(epoch), device)


def _select(table: Table, parts: Iterable[StepShare], device: torch.device) -> Iterator[Step]:
    for part in parts:
        numbers = map(torch.from_numpy, part.batches)
        yield Step(part.n_points, [table.select(points).to(device) for points in numbers])
