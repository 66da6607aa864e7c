"""Baseline: the same gradient steps in plain PyTorch, with Dataset, DataLoader and autograd.

This is the comparison of Qiu et al. (doi:10.4203/ccc.12.2.4, section 3). Each point is an item of a
Dataset, batches are collated from items, and the tree is a chain of Kronecker and matrix products
that autograd differentiates. Optimizer, order, validation and records are as in `resident`.
"""

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from pipeline_core.project.run import Run
from pipeline_htfbr.model import Surface
from pipeline_htfbr.training.fit import Method, train_by_gradients
from pipeline_htfbr.training.shares import Plan, Step, Steps, StepShare
from pipeline_htfbr.training.tabulated import Forward, Table
from pipeline_papers.htfbr.studies.options import RivalTrainOptions


def train_with_loader(run: Run) -> dict[str, Any] | None:
    """Fit the surface of a run, see `train_by_gradients`; return None for other methods."""
    if run.get_section("train", RivalTrainOptions).method != "dataloader":
        return None
    return train_by_gradients(run, DATALOADER)


def make_kronecker_forward(module: Surface) -> Forward:
    """Return f as products of matrices, U_t = (U_l ⊗ U_r) B_t for each point (eq. 13)."""

    def evaluate_tree(functions: Tensor) -> Tensor:
        parts = list(functions.T.split([leaf.count for leaf in module.leaves], dim=1))
        for mu, combinations in enumerate(module.maps):
            parts[mu] = parts[mu] @ combinations
        tensors = module.shape.split_transfers(module.transfers)
        for node, B in zip(module.shape.nodes, tensors, strict=True):
            products = parts[node.left][:, :, None] * parts[node.right][:, None, :]
            parts.append(products.flatten(1) @ B.flatten(0, 1))  # (n, rank)
        root: Tensor = parts[-1]
        return root[:, 0]

    return evaluate_tree


def load_steps(table: Table, plan: Plan, device: torch.device) -> Steps:
    """Collate each batch from its points, and move it to the device."""
    order = _Order()
    loader = DataLoader(_PointItems(table), batch_sampler=order)

    def iterate_steps(epoch: int) -> Iterator[Step]:
        order.parts = plan.plan_epoch(epoch)
        batches = iter(loader)
        for part in order.parts:
            loaded = [next(batches) for _ in part.batches]
            tables = [Table(rows.T, energies).to(device) for rows, energies in loaded]
            yield Step(part.n_points, tables)

    return iterate_steps


class _PointItems(Dataset[tuple[Tensor, Tensor]]):
    """Dataset of single points: functions of the leaves, (n_functions,), and f, ()."""

    def __init__(self, table: Table) -> None:
        self._functions, self._energies = table.functions.T.contiguous(), table.energies

    def __len__(self) -> int:
        return len(self._energies)

    def __getitem__(self, point: int) -> tuple[Tensor, Tensor]:
        return self._functions[point], self._energies[point]


class _Order(Sampler[list[int]]):
    """Sampler of the batches of the current epoch."""

    parts: list[StepShare]

    def __init__(self) -> None:
        self.parts = []

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for part in self.parts for batch in part.batches)

    def __len__(self) -> int:
        return sum(len(part.batches) for part in self.parts)


DATALOADER: Final = Method(load_steps, make_kronecker_forward)
