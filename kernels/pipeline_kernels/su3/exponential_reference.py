"""The exponential from su(N) to SU(N), its inverse, and their derivatives, in plain PyTorch."""

from functools import cache

import torch
from torch import Tensor

from pipeline_kernels.su3.angles_reference import spectrum


def algebra_part(A: Tensor) -> Tensor:
    """Returns the nearest traceless antihermitian matrices."""
    H = (A - A.mH) / 2
    trace = H.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    return H - trace * torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)


def exponential(A: Tensor) -> Tensor:
    """Returns the exponentials of the parts of A in the algebra."""
    return torch.matrix_exp(algebra_part(A.to(torch.complex128))).to(A.dtype)


def exponential_gradient(A: Tensor, G: Tensor) -> Tensor:
    """Differentiates `exponential` by A, where G is the derivative by its result.

    The upper right block of `exp([[B, G], [0, B]])` is the derivative of the exponential at
    `B = A^dagger` along G, and that the adjoint of the derivative at A.
    """
    dtype, N = A.dtype, A.shape[-1]
    A, G = algebra_part(A.to(torch.complex128)), G.to(torch.complex128)
    upper = torch.cat([A.mH, G], -1)
    block = torch.cat([upper, torch.cat([torch.zeros_like(A), A.mH], -1)], -2)
    return algebra_part(torch.matrix_exp(block)[..., :N, N:]).to(dtype)


def logarithm(U: Tensor) -> Tensor:
    """Returns `sum_k i theta_k P_k` of the canonical angles and the projectors of U."""
    angles, projectors = spectrum(U.reshape(-1, *U.shape[-2:]))
    A = torch.einsum("nk,nkij->nij", 1j * angles, projectors.to(torch.complex128))
    return algebra_part(A).reshape(U.shape).to(U.dtype)


def logarithm_gradient(A: Tensor, U: Tensor, G: Tensor) -> Tensor:
    """Differentiates `logarithm` by U, where A is its result and G the derivative by that.

    With `U^dagger dU = sum_s w_s (-ad)^s dA / (s + 1)! = J dA`, ad the commutator with A as a real
    matrix in a basis of the algebra, the derivative is `U J^{-T} G`.
    """
    dtype = U.dtype
    A, U, G = (x.to(torch.complex128) for x in (A, U, G))
    basis = generators(A.shape[-1]).to(A.device)
    by_basis = torch.einsum("aij,...ij->...a", basis.conj(), A).real
    ad = torch.einsum("...a,acb->...bc", by_basis, _structure(A.shape[-1]).to(A.device))
    one = torch.eye(len(basis), dtype=ad.dtype, device=A.device).expand_as(ad)
    zero = torch.zeros_like(ad)
    block = torch.cat([torch.cat([-ad, one], -1), torch.cat([zero, zero], -1)], -2)
    J = torch.matrix_exp(block)[..., : len(basis), len(basis) :]
    g = torch.einsum("aij,...ij->...a", basis.conj(), G).real
    x = torch.linalg.solve(J.mT, g)
    return (U @ torch.einsum("...a,aij->...ij", x.to(basis.dtype), basis)).to(dtype)


@cache
def generators(n_colours: int) -> Tensor:
    """Returns a basis of su(N), `(N^2 - 1, N, N)`, with `tr T_a^dagger T_b = delta_ab`."""
    found = []
    for j in range(n_colours):
        for i in range(j):
            for upper, lower in ((1, -1), (1j, 1j)):
                T = torch.zeros(n_colours, n_colours, dtype=torch.complex128)
                T[i, j], T[j, i] = upper, lower
                found.append(T / 2**0.5)
        if j:
            diagonal = torch.tensor([1.0] * j + [-j] + [0] * (n_colours - j - 1))
            found.append(torch.diag(1j * diagonal.double() / (j * (j + 1)) ** 0.5))
    return torch.stack(found)


@cache
def _structure(n_colours: int) -> Tensor:
    """Returns f of `[T_a, T_b] = sum_c f[a, b, c] T_c`."""
    T = generators(n_colours)
    product = torch.einsum("aij,bjk->abik", T, T)
    commutator = product - product.transpose(0, 1)
    return torch.einsum("cij,abij->abc", T.conj(), commutator).real
