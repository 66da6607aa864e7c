"""Projection to U(N) and SU(N) on the CPU: C, with matrices as lanes of vectors."""

from torch import Tensor

from pipeline_kernels.su3 import lanes


def polar(M: Tensor, special: bool) -> Tensor:
    """Implement `reference.polar`."""
    U = M.new_empty(M.shape)
    lanes.run_matrices("projection", "polar", [M, U], special)
    return U


def polar_gradient(M: Tensor, W: Tensor, G: Tensor, special: bool) -> Tensor:
    """Implement `reference.polar_gradient`."""
    gradient = M.new_empty(M.shape)
    lanes.run_matrices("projection", "polar_gradient", [M, W, G, gradient], special)
    return gradient
