"""Eigenangles as `torch.library` operators: devices, shapes, derivatives, checks."""

from typing import Any

import torch
from torch import Tensor

from pipeline_kernels.su3 import angles_reference as reference
from pipeline_kernels.su3 import lanes

DTYPES = (torch.complex64, torch.complex128)


def eigenangles(U: Tensor) -> Tensor:
    """Calculates the eigenangles of SU(2) or SU(3) matrices in the canonical cell.

    They are descending, their sum is zero and the first exceeds the last by 2 pi at most, which
    holds for one choice of the angles only. Differentiable any number of times; where angles are
    equal the derivative is one of the bounded values that it takes around.

    | symbol          | argument          |
    |-----------------|-------------------|
    | `U`             | `U`               |
    | `theta_k`       | `result[..., k]`  |

    Args:
        U: special unitary matrices, `(..., N, N)`, N = 2 or 3, complex64 or complex128.

    Returns:
        Angles in radians, `(..., N)`, float64.

    Raises:
        ValueError: if these are no such matrices by shape or type.
    """
    check_matrices("U", U)
    found: Tensor = _angles(U.reshape(-1, *U.shape[-2:]))
    return found.reshape(U.shape[:-1])


def check_matrices(name: str, U: Tensor) -> None:
    """Refuses what is not complex and square with 2 or 3 rows.

    Raises:
        ValueError: if so.
    """
    if U.dtype not in DTYPES:
        raise ValueError(f"{name}: expected one dtype of {DTYPES}, got {U.dtype}")
    if U.ndim < 2 or U.shape[-2:] not in {(2, 2), (3, 3)}:
        raise ValueError(f"{name}: expected (..., N, N) with N = 2 or 3, got {tuple(U.shape)}")


@torch.library.custom_op("pipeline_kernels::su3_angles", mutates_args=())
def _angles(U: Tensor) -> Tensor:
    return reference.eigenangles(U).clone()


@_angles.register_kernel("cpu")
def _angles_cpu(U):
    angles = U.new_empty(U.shape[:-1], dtype=torch.float64)
    lanes.run("angles", "eigenangles", [U, angles])
    return angles


@_angles.register_kernel("cuda")
def _angles_cuda(U):
    from pipeline_kernels.su3 import angles_cuda

    return angles_cuda.eigenangles(U)


@_angles.register_fake
def _angles_shape(U):
    return U.new_empty(U.shape[:-1], dtype=torch.float64)


@torch.library.custom_op("pipeline_kernels::su3_angles_gradient", mutates_args=())
def _gradient(U: Tensor, weights: Tensor) -> Tensor:
    return reference.angles_gradient(U, weights)


@_gradient.register_kernel("cpu")
def _gradient_cpu(U, weights):
    found = U.new_empty(U.shape)
    lanes.run("angles", "eigenangles_gradient", [U, weights, found])
    return found


@_gradient.register_kernel("cuda")
def _gradient_cuda(U, weights):
    from pipeline_kernels.su3 import angles_cuda

    return angles_cuda.angles_gradient(U, weights)


@_gradient.register_fake
def _gradient_shape(U, weights):
    return U.new_empty(U.shape)


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _angles_backward(ctx: Any, weights: Tensor) -> Tensor:
    found: Tensor = _gradient(*ctx.saved_tensors, weights)
    return found


def _gradient_backward(ctx: Any, direction: Tensor) -> tuple[Tensor | None, ...]:
    return differentiate(ctx, reference.angles_gradient, (direction,))


def differentiate(ctx: Any, function: Any, directions: tuple[Tensor, ...]) -> tuple:
    """Returns derivatives of plain PyTorch by saved tensors, along gradients of its results."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # Views, so that a path from one argument to another outside of here does not count.
        inputs = [
            t.view_as(t) if again else t.detach().requires_grad_(need)
            for t, need in zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
        ]
        outputs = function(*inputs)
    outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
    wanted = [t for t, need in zip(inputs, ctx.needs_input_grad, strict=False) if need]
    found = iter(
        torch.autograd.grad(outputs, wanted, directions, create_graph=again, materialize_grads=True)
    )
    return tuple(next(found) if need else None for need in ctx.needs_input_grad)


_angles.register_autograd(_angles_backward, setup_context=_save)
_gradient.register_autograd(_gradient_backward, setup_context=_save)
