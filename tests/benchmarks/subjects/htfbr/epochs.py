"""Epochs of gradient steps over resident points, in several ways; for `htfbr_epoch.py`.

All ways start from the same weights and points, and an epoch is one step over all of them with a
fused AdamW.

| way        | what                                                                             |
|------------|----------------------------------------------------------------------------------|
| ours       | `train.method: resident`: the plugin's step, its kernel's analytic gradient       |
| peer       | plain torch: Kronecker and matrix products node by node, autograd                 |
| dataloader | `train.method: dataloader`: the same by torch's Dataset and DataLoader            |
| reference  | the kernel's reference in torch (einsum, samples last), autograd                  |
| compiled   | peer, its loss and gradient by torch.compile                                      |
| graph      | ours as one CUDA graph, optimizer included                                        |
"""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pipeline_core.distributed.ranks import Ranks
from pipeline_core.project.run import Run
from pipeline_core.task import build_task
from pipeline_core.training.start import initialize_weights
from pipeline_htfbr.model import Surface
from pipeline_htfbr.options import HTTrainOptions
from pipeline_htfbr.training.descent import Descent
from pipeline_htfbr.training.resident import select_steps
from pipeline_htfbr.training.shares import Plan, Steps
from pipeline_htfbr.training.tabulated import Forward, Table, tabulate
from pipeline_kernels.tree import TreeShape, reference
from pipeline_papers.htfbr.studies.dataloader import load_steps, make_kronecker_forward

Call = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """A surface with random weights and its points.

    Attributes:
        module: On the CPU.
        table: Points, on the CPU, in the type of the weights.
        options: Of the training.
        ranks: One process and its device.
    """

    module: Surface
    table: Table
    options: HTTrainOptions
    ranks: Ranks

    @property
    def on_device(self) -> tuple[Surface, Table]:
        """A copy of the surface, and the points, where the work is done."""
        return deepcopy(self.module).to(self.ranks.device), self.table.to(self.ranks.device)


def make_case(run: Run, n_points: int, ranks: Ranks) -> Case:
    """Return the surface of a run with its training points, repeated or cut to a number."""
    torch.manual_seed(0)
    options, module = run.get_section("train", HTTrainOptions), build_task(run).module
    assert isinstance(module, Surface)
    initialize_weights(module, options, run.model_info, fresh=True)
    (table,) = tabulate(run, module, gradients=False, splits=("train",))
    return Case(module, table.select(torch.arange(n_points) % len(table)), options, ranks)


def make_epoch_of_ours(case: Case) -> Call:
    """Return an epoch as `resident` does it."""
    module, _ = case.on_device
    steps = select_steps(case.table, _plan(case), case.ranks.device)
    return make_epoch_loop(module, module.evaluate_table, steps, case)


def make_dataloader_epoch(case: Case) -> Call:
    """Return an epoch as `dataloader` does it."""
    module, _ = case.on_device
    steps = load_steps(case.table, _plan(case), case.ranks.device)
    return make_epoch_loop(module, make_kronecker_forward(module), steps, case)


def make_epoch_loop(module: Surface, forward: Forward, steps: Steps, case: Case) -> Call:
    descent = Descent(module, forward, case.options, case.ranks)

    def epoch() -> None:
        for step in steps(0):
            descent.step(*step)
        descent.rate.step(math.nan)

    return epoch


def _plan(case: Case) -> Plan:
    n = len(case.table)
    return Plan(n_points=n, batch_size="all", capacity=n, seed=0, rank=0, n_ranks=1)


def make_gradient_of_ours(case: Case) -> Callable[[], Tensor]:
    """Return forward and backward of ours alone; they give the gradient of the loss."""
    module, table = case.on_device

    def gradient() -> Tensor:
        f = module.evaluate_table(table.functions)
        upstream = (f.detach() - table.energies).mul_(2 / len(table))
        return torch.autograd.grad(f, module.transfers, upstream)[0]

    return gradient


class Peer(nn.Module):
    """The tree as plain torch does it best: samples first, leaves cut beforehand, no root loop."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        module, table = case.on_device
        self._nodes = module.shape.nodes
        parts = table.functions.T.split(list(module.shape.leaf_ranks), dim=1)
        self._leaves, self._energies = [part.contiguous() for part in parts], table.energies
        tensors = module.shape.split_transfers(module.transfers.detach())
        self.transfers = nn.ParameterList(B.clone() for B in tensors)

    def forward(self) -> Tensor:
        """Return the loss."""
        parts = list(self._leaves)
        for node, B in zip(self._nodes[:-1], self.transfers[:-1], strict=True):
            products = parts[node.left][:, :, None] * parts[node.right][:, None, :]
            parts.append(products.flatten(1) @ B.flatten(0, 1))
        root = self._nodes[-1]
        f = ((parts[root.left] @ self.transfers[-1][:, :, 0]) * parts[root.right]).sum(1)
        return nn.functional.mse_loss(f, self._energies)


def make_epoch_of_peer(case: Case) -> Call:
    """Return an epoch of plain torch."""
    return _make_torch_epoch(module := Peer(case), module, case)


def make_compiled_epoch(case: Case) -> Call:
    """Return an epoch of plain torch that is compiled."""
    module = Peer(case)
    mode = "reduce-overhead" if case.ranks.device.type == "cuda" else "default"
    return _make_torch_epoch(module, torch.compile(module, mode=mode), case)


def make_reference_epoch(case: Case) -> Call:
    """Return an epoch by autograd through the reference of the kernel."""
    module, table = case.on_device

    def loss() -> Tensor:
        f, _ = reference.contract(table.functions, module.transfers, module.shape)
        return nn.functional.mse_loss(f, table.energies)

    return _make_torch_epoch(module, loss, case)


def _make_torch_epoch(module: nn.Module, loss: Callable[[], Tensor], case: Case) -> Call:
    optimizer = make_adamw(module, case)

    def epoch() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return epoch


def make_gradient_of_peer(case: Case) -> Callable[[], Tensor]:
    """Return forward and backward of plain torch alone."""
    module = Peer(case)

    def gradient() -> Tensor:
        result = torch.autograd.grad(module(), list(module.parameters()))
        return torch.cat([part.flatten() for part in result])

    return gradient


def capture_graph(case: Case) -> Call:
    """Return the replay of a CUDA graph of an epoch of ours."""
    module, table = case.on_device
    optimizer = make_adamw(module, case, capturable=True)

    def epoch() -> None:
        optimizer.zero_grad()
        f = module.evaluate_table(table.functions)
        torch.autograd.backward(f, (f.detach() - table.energies).mul_(2 / len(table)))
        optimizer.step()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # compiles, and allocates the optimizer's state
        for _ in range(3):
            epoch()
    torch.cuda.current_stream().wait_stream(stream)
    optimizer.zero_grad()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        epoch()
    return captured.replay


def make_adamw(module: nn.Module, case: Case, *, capturable: bool = False) -> torch.optim.AdamW:
    options = case.options.optimizer
    return torch.optim.AdamW(
        module.parameters(),
        lr=options.lr,
        betas=options.betas,
        weight_decay=options.weight_decay,
        fused=True,
        capturable=capturable,
    )


def count_operations(shape: TreeShape, n_points: int) -> int:
    """Floating-point operations of forward and backward over points, as few as the tree needs.

    A multiply-add counts as two, and so does a product that is not added to anything. Of a node of
    ranks a, b (children) and c, per point: forward `ab` products of the children and `abc` with
    the transfers; backward `abc` for the gradient of the transfers and, if a child is no leaf,
    `abc` for that of the products and `ab` for each such child. No optimizer, no loss.
    """
    total = 0
    for node, (a, b, c) in zip(shape.nodes, shape.tensor_shapes, strict=True):
        inner = sum(child >= shape.n_leaves for child in (node.left, node.right))
        total += a * b + 2 * a * b * c + (a * b * c if inner else 0) + inner * a * b
    return 2 * n_points * total
