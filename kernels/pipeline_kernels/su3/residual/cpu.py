"""The residual step on the CPU: C, with matrices as lanes of vectors."""

from torch import Tensor

from pipeline_kernels.su3 import lanes


def residual_step(
    U: Tensor, paths: Tensor, weights: Tensor, inverse: bool
) -> tuple[Tensor, Tensor]:
    """Implement `reference.residual_step`."""
    moved, log_det = U.new_empty(U.shape), weights.new_empty(U.shape[0])
    arrays = [U, paths, weights, moved, log_det]
    lanes.run_matrices("residual", "residual_step", arrays, weights.shape[1], inverse)
    return moved, log_det


def residual_gradient(
    U: Tensor,
    paths: Tensor,
    weights: Tensor,
    moved: Tensor,
    by_moved: Tensor,
    by_log_det: Tensor,
    inverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Implement `reference.residual_gradient`."""
    results = tuple(x.new_empty(x.shape) for x in (U, paths, weights))
    arrays = [U, paths, weights, moved, by_moved, by_log_det, *results]
    lanes.run_matrices("residual", "residual_gradient", arrays, weights.shape[1], inverse)
    by_U, by_paths, by_weights = results
    return by_U, by_paths, by_weights
