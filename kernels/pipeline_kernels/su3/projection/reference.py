"""Special unitary factors of matrices, and their derivative, in plain PyTorch."""

import torch
from torch import Tensor

from pipeline_kernels.su3.matrices import conjugate_transpose


def project(M: Tensor) -> Tensor:
    """Return U of `M = U P`, P positive, over the principal root of its determinant."""
    left, _, right = torch.linalg.svd(M.to(torch.complex128))
    U: Tensor = left @ right
    angle = torch.linalg.det(U).angle() / U.shape[-1]
    return (U * torch.polar(torch.ones_like(angle), -angle)[..., None, None]).to(M.dtype)


def project_gradient(M: Tensor, W: Tensor, G: Tensor) -> Tensor:
    """Differentiate `project` by M, where W is its result and G the derivative by that.

    U = phase W, `dU = U X` where `P X + X P = U^dagger dM - h.c.`; the map from the right-hand side
    to X is its own adjoint. The phase takes the trace out of X.

    Differentiable by all three, any number of times, also where singular values are equal.
    """
    dtype, N = M.dtype, M.shape[-1]
    M, W, G = (x.to(torch.complex128) for x in (M, W, G))
    P, Y = conjugate_transpose(W) @ M, conjugate_transpose(W) @ G
    Y = Y - conjugate_transpose(Y)
    phase = _trace(P) / _trace(P).abs()
    P, U = P * phase.conj_physical(), W * phase
    Y = Y - _trace(Y) / N * torch.eye(N, dtype=Y.dtype, device=Y.device)
    return (U @ solve_anticommutator((P + conjugate_transpose(P)) / 2, Y)).to(dtype)


def solve_anticommutator(P: Tensor, Y: Tensor) -> Tensor:
    """Solve `P X + X P = Y` for X, with positive P, without the eigenvalues of P.

    | symbol | variable                                                   |
    |--------|------------------------------------------------------------|
    | `e_k`  | `e1`, `e2`, `e3`, elementary symmetric polynomials of the eigenvalues s of P |
    | `Q`    | `e1 - P`, of eigenvalues `s_j + s_k`                       |

    In the basis where P is diagonal, `Q Y Q / det Q` has the elements `Y_ij / (s_i + s_j)` off the
    diagonal. The remaining diagonal is a polynomial of P, a second divided difference summed in
    closed form (as in A. Hoger and D. E. Carlson, Q. Appl. Math. 42, 113, 1984).
    """
    one = torch.eye(P.shape[-1], dtype=P.dtype, device=P.device)
    e1, t0, t1 = _trace(P), _trace(Y), _trace(P @ Y)
    if P.shape[-1] == 2:
        e2 = (e1 * e1 - _trace(P @ P)) / 2
        along = ((e1 * e1 - e2) * t0 - e1 * t1) * one + (t1 - e1 * t0) * P
        return Y / e1 + along / (2 * e1 * e2)
    square = P @ P
    e2, t2 = (e1 * e1 - _trace(square)) / 2, _trace(square @ Y)
    e3 = (_trace(square @ P) - e1**3 + 3 * e1 * e2) / 3
    Q, det = e1 * one - P, e1 * e2 - e3
    by_one = (e1 * e2**2 - e3 * (e1**2 + e2)) * t0 + (2 * e1 * e3 - e1**2 * e2) * t1 + det * t2
    by_P = (2 * e1 * e3 - e1**2 * e2) * t0 + (e1**3 - e3) * t1 - e1**2 * t2
    by_square = det * t0 - e1**2 * t1 + e1 * t2
    along = by_one * one + by_P * P + by_square * square
    return (Q @ Y @ Q + along / (2 * e3)) / det


def _trace(M: Tensor) -> Tensor:
    return M.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
