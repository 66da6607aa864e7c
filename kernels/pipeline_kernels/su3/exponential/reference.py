"""The exponential from su(N) to SU(N), and its derivative, in plain PyTorch."""

import torch
from torch import Tensor

from pipeline_kernels.su3.matrices import conjugate_transpose


def project_to_algebra(A: Tensor) -> Tensor:
    """Return the nearest traceless antihermitian matrices."""
    H = (A - conjugate_transpose(A)) / 2
    trace = H.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    return H - trace * torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)


def exponential(A: Tensor) -> Tensor:
    """Return the exponentials of the parts of A in the algebra."""
    return torch.matrix_exp(project_to_algebra(A.to(torch.complex128))).to(A.dtype)


def exponential_gradient(A: Tensor, G: Tensor) -> Tensor:
    """Differentiate `exponential` by A, where G is the derivative by its result.

    The upper right block of `exp([[B, G], [0, B]])` is the derivative of the exponential at
    `B = A^dagger` along G, and that the adjoint of the derivative at A.
    """
    dtype, N = A.dtype, A.shape[-1]
    A, G = project_to_algebra(A.to(torch.complex128)), G.to(torch.complex128)
    upper = torch.cat([conjugate_transpose(A), G], -1)
    block = torch.cat([upper, torch.cat([torch.zeros_like(A), conjugate_transpose(A)], -1)], -2)
    return project_to_algebra(torch.matrix_exp(block)[..., :N, N:]).to(dtype)
