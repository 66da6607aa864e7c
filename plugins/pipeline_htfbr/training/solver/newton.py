"""Polish: damped Gauss-Newton steps (Levenberg-Marquardt) with early stopping.

They minimise the squared error of all columns (training points, their gradients, and points that
keep the tree near its start, see `Columns`) over all transfer tensors at once:

    (J^T J + ν D) p = J^T r,    D = diag(J^T J),

with ν lowered after a successful step and raised after a rejected one. The normal equations are
solved directly, or by conjugate gradients with products J v and J^T w where they would be too
large. Steps end when the error on the validation points no longer falls; the best tree is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch import Tensor

from pipeline_core.distributed.ranks import Ranks
from pipeline_kernels.tree import Linear, TreeShape, contract, jacobian

_BLOCK_BYTES: Final = 64_000_000
_DENSE_PARAMETERS: Final = 5000
"""Largest tree whose normal equations are solved directly."""
_FIRST_DAMPING: Final = 1e-2
_TRIES: Final = 6
_PATIENCE: Final = 2
_CONJUGATE_STEPS: Final = 60
_CONJUGATE_TOLERANCE: Final = 1e-2

Solve = Callable[[float], Tensor]
"""Function from the damping ν to the step p."""


@dataclass(frozen=True)
class Columns:
    """Weighted points for a linear fit of a tree: functions of all leaves and a target.

    A tree is linear in the functions of each leaf, so a weight is a factor of the functions of the
    first leaf and of the target, and a derivative by a coordinate is a point at which the functions
    of its leaf are replaced by their derivatives.

    Attributes:
        features: (n_functions, n).
        y: (n,).
    """

    features: Tensor
    y: Tensor


@dataclass(frozen=True)
class Polished:
    """Result of a polish.

    Attributes:
        transfers: Transfer tensors with the least error on the validation points.
        val_rmse: RMSE on the validation points.
        history: Root mean squared errors (all columns, validation) before and after each step.
    """

    transfers: Tensor
    val_rmse: float
    history: list[tuple[float, float]]


def polish(
    shape: TreeShape,
    transfers: Tensor,
    own: Columns,
    val: Columns,
    ranks: Ranks,
    *,
    iterations: int,
) -> Polished:
    """Improve a tree by Gauss-Newton steps.

    Args:
        shape: The tree.
        transfers: Initial transfer tensors, float64.
        own: Columns of this rank.
        val: Validation points, the same on all ranks.
        ranks: The ranks, which all return the same result.
        iterations: Most steps.
    """
    model = _Model(shape, own, ranks)
    dense = shape.n_transfers <= _DENSE_PARAMETERS
    loss, damping, waited = model.loss(transfers), _FIRST_DAMPING, 0
    best = Polished(transfers, _compute_rmse(shape, transfers, val), [])
    history = [(loss**0.5, best.val_rmse)]
    for _ in range(iterations):
        solve = model.build_matrix(transfers) if dense else model.build_products(transfers)
        for _ in range(_TRIES):
            trial = transfers + solve(damping)
            trial_loss = model.loss(trial)
            if trial_loss < loss:
                break
            damping *= 8
        else:
            break
        transfers, loss, damping = trial, trial_loss, damping / 5
        error = _compute_rmse(shape, transfers, val)
        history.append((loss**0.5, error))
        waited = 0 if error < best.val_rmse * 0.999 else waited + 1
        if error < best.val_rmse:
            best = Polished(transfers, error, [])
        if waited >= _PATIENCE:
            break
    return Polished(best.transfers, best.val_rmse, history)


class _Model:
    """Errors and normal equations of a tree over the columns of all ranks."""

    def __init__(self, shape: TreeShape, own: Columns, ranks: Ranks) -> None:
        self._shape, self._own, self._ranks = shape, own, ranks
        self._n = float(ranks.all_reduce_sum(torch.tensor(float(len(own.y)), dtype=torch.float64)))
        self._block = max(256, _BLOCK_BYTES // (8 * shape.n_transfers))

    def loss(self, transfers: Tensor) -> float:
        """Return the mean squared error."""
        total = (contract(self._own.features, transfers, self._shape) - self._own.y).square().sum()
        return float(self._ranks.all_reduce_sum(total)) / self._n

    def build_matrix(self, transfers: Tensor) -> Solve:
        """Return the normal equations as a matrix."""
        size = self._shape.n_transfers
        matrix = torch.zeros(size, size, dtype=torch.float64)
        right = torch.zeros(size, dtype=torch.float64)
        for numbers in torch.arange(len(self._own.y)).split(self._block):
            features = self._own.features[:, numbers].contiguous()
            residual = self._own.y[numbers] - contract(features, transfers, self._shape)
            J = jacobian(features, transfers, self._shape)
            matrix.addmm_(J.T, J)
            right.addmv_(J.T, residual)
        sums = self._ranks.all_reduce_sum(matrix), self._ranks.all_reduce_sum(right)
        return partial(_solve_directly, *sums)

    def build_products(self, transfers: Tensor) -> Solve:
        """Return the normal equations as matrix-vector products."""
        linear = Linear(self._own.features, transfers, self._shape)

        def product(v: Tensor) -> Tensor:
            return self._ranks.all_reduce_sum(linear.gradient(linear.tangent(v)))

        right = self._ranks.all_reduce_sum(linear.gradient(self._own.y - linear.value))
        return partial(_solve_iteratively, product, right)


def _solve_directly(matrix: Tensor, right: Tensor, damping: float) -> Tensor:
    diagonal = matrix.diagonal()
    scale = diagonal.clamp(min=1e-12 * diagonal.max()).rsqrt()
    scaled = matrix * scale * scale[:, None]
    scaled.diagonal().add_(damping)
    factor = torch.linalg.cholesky(scaled)
    return scale * torch.cholesky_solve((scale * right)[:, None], factor)[:, 0]


def _solve_iteratively(
    product: Callable[[Tensor], Tensor], right: Tensor, damping: float
) -> Tensor:
    """Solve by conjugate gradients, damped by a multiple of the identity."""
    shift = damping * float(product(right) @ right / (right @ right))
    x, r = torch.zeros_like(right), right.clone()
    p, norm = r.clone(), float(r @ r)
    target = _CONJUGATE_TOLERANCE**2 * norm
    for _ in range(_CONJUGATE_STEPS):
        image = product(p) + shift * p
        step = norm / float(p @ image)
        x += step * p
        r -= step * image
        before, norm = norm, float(r @ r)
        if norm < target:
            break
        p = r + (norm / before) * p
    return x


def _compute_rmse(shape: TreeShape, transfers: Tensor, columns: Columns) -> float:
    error = contract(columns.features, transfers, shape) - columns.y
    return float(error.square().mean().sqrt())
