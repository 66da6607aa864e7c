"""The logarithm on the CPU: C, with matrices as lanes of vectors."""

from torch import Tensor

from pipeline_kernels.su3 import lanes


def logarithm(U: Tensor) -> Tensor:
    """Implement `reference.logarithm`."""
    A = U.new_empty(U.shape)
    lanes.run_matrices("logarithm", "logarithm", [U, A])
    return A


def logarithm_gradient(U: Tensor, A: Tensor, G: Tensor) -> Tensor:
    """Implement `reference.logarithm_gradient`."""
    gradient = U.new_empty(U.shape)
    lanes.run_matrices("logarithm", "logarithm_gradient", [A, U, G, gradient])
    return gradient
