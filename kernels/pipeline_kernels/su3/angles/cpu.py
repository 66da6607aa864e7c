"""Eigenangles on the CPU: C, with matrices as lanes of vectors."""

import torch
from torch import Tensor

from pipeline_kernels.su3 import lanes


def eigenangles(U: Tensor) -> Tensor:
    """Implement `reference.eigenangles`."""
    angles = U.new_empty(U.shape[:-1], dtype=torch.float64)
    lanes.run_matrices("angles", "eigenangles", [U, angles])
    return angles


def angles_gradient(U: Tensor, weights: Tensor) -> Tensor:
    """Implement `reference.angles_gradient`."""
    gradient = U.new_empty(U.shape)
    lanes.run_matrices("angles", "eigenangles_gradient", [U, weights, gradient])
    return gradient
