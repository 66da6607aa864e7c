"""Points for gradient steps: tabulated, standardised, in the dtype of the parameters.

f = (V - shift)/scale is fitted. Its derivatives are by s, which runs from -1 to 1 over the
domain of a coordinate, so that all derivatives have the same unit.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

from pipeline_core.project.run import Run
from pipeline_htfbr.data.points import read_points
from pipeline_htfbr.graph.basis import compute_slopes
from pipeline_htfbr.graph.build import read_features
from pipeline_htfbr.model import Surface

Forward = Callable[[Tensor], Tensor]
"""Map of the functions of all leaves, (n_functions, n), to f, (n,)."""


@dataclass(frozen=True)
class Table:
    """Tabulated points.

    Attributes:
        functions: Functions of all leaves, (n_functions, n).
        energies: Labels of f, (n,).
        slopes: Derivatives of the functions by s, (n_functions, n); None if no gradient is fitted.
        gradients: Labels of the derivatives of f, (d, n); None likewise.
    """

    functions: Tensor
    energies: Tensor
    slopes: Tensor | None = None
    gradients: Tensor | None = None

    def __len__(self) -> int:
        return len(self.energies)

    def to(self, *args: Any) -> Self:
        """Return the table with another dtype or on another device, as `Tensor.to`."""
        return self._map(lambda tensor: tensor.to(*args))

    def select(self, points: Tensor) -> Self:
        """Return the points with some indices."""
        return self._map(lambda tensor: tensor.index_select(-1, points.to(tensor.device)))

    def _map(self, change: Callable[[Tensor], Tensor]) -> Self:
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{n: change(c) for n, c in columns.items() if c is not None})


def tabulate(
    run: Run, module: Surface, *, gradients: bool, splits: tuple[str, ...] = ("train", "val")
) -> list[Table]:
    """Tabulate the points of some splits, on the CPU.

    Args:
        run: The run.
        module: The surface; shift and scale define f, the leaves define s.
        gradients: Tabulate gradients too.
        splits: Names of the splits.

    Raises:
        ValueError: A file is missing or damaged.
    """
    points, functions = read_points(run.data), read_features(run)
    shift, scale = module.shift.cpu(), module.scale.cpu()
    table = Table(functions, (torch.from_numpy(points.energy) - shift) / scale)
    if gradients:
        assert points.gradient is not None, "the task refuses points without"
        half, owners = compute_half_domains(module), make_owners(module).cpu().double()
        labels = torch.from_numpy(points.gradient.T) * half[:, None] / scale
        by_x = compute_slopes(module.leaves, torch.from_numpy(points.x))
        by_s = by_x * (owners.T @ half)[:, None]
        table = Table(table.functions, table.energies, by_s, labels)
    numbers = (torch.from_numpy(points.find_rows(split)) for split in splits)
    return [table.select(own).to(module.transfers.dtype) for own in numbers]


def compute_half_domains(module: Surface) -> Tensor:
    """Return half the length of each coordinate's domain: dx/ds, (d,) float64."""
    lengths = [leaf.upper - leaf.lower for leaf in module.leaves]
    return torch.tensor(lengths, dtype=torch.float64) / 2


def compute_outputs(forward: Forward, table: Table, owners: Tensor) -> list[Tensor]:
    """Evaluate f and, if they are fitted, its derivatives by s.

    Args:
        forward: Function that computes f.
        table: The points.
        owners: 1 if a function belongs to a coordinate, else 0, (d, n_functions).

    Returns:
        (n,), and (d, n); a gradient is recorded only if the caller has gradients enabled.
    """
    if table.slopes is None:
        return [forward(table.functions)]
    recording = torch.is_grad_enabled()
    with torch.enable_grad():
        functions = table.functions.detach().requires_grad_()
        f = forward(functions)
        (by_functions,) = torch.autograd.grad(f.sum(), functions, create_graph=recording)
    return [f if recording else f.detach(), owners @ (by_functions * table.slopes)]


def compute_residuals(outputs: list[Tensor], table: Table) -> list[Tensor]:
    """Return prediction minus label of the result of `compute_outputs`, without a gradient."""
    labels = (table.energies, table.gradients)
    return [
        f.detach() - label for f, label in zip(outputs, labels, strict=False) if label is not None
    ]


def make_owners(module: Surface) -> Tensor:
    """Return the mask of the functions of each coordinate, for `compute_outputs`."""
    counts = [leaf.count for leaf in module.leaves]
    rows = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return torch.nn.functional.one_hot(rows).T.to(module.transfers)
