"""Gradient steps over points that stay in memory, with the analytic gradient of the tree."""

from collections.abc import Iterable, Iterator
from typing import Final

import torch

from pipeline_htfbr.training.fit import Method
from pipeline_htfbr.training.shares import Plan, Step, Steps, StepShare
from pipeline_htfbr.training.tabulated import Table


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


RESIDENT: Final = Method(select_steps, lambda surface: surface.evaluate_table)
