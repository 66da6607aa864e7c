"""The logarithm from SU(N) to su(N), and its derivative, in plain PyTorch."""

from functools import cache

import torch
from torch import Tensor

from pipeline_kernels.su3.angles.reference import decompose
from pipeline_kernels.su3.exponential.reference import project_to_algebra


def logarithm(U: Tensor) -> Tensor:
    """Return `sum_k i theta_k P_k` of the canonical angles and the projectors of U."""
    angles, projectors = decompose(U.reshape(-1, *U.shape[-2:]))
    A = torch.einsum("nk,nkij->nij", 1j * angles, projectors.to(torch.complex128))
    return project_to_algebra(A).reshape(U.shape).to(U.dtype)


def logarithm_gradient(U: Tensor, A: Tensor, G: Tensor) -> Tensor:
    """Differentiate `logarithm` by U, where A is its result and G the derivative by that.

    With `U^dagger dU = sum_s w_s (-ad)^s dA / (s + 1)! = J dA`, ad the commutator with A as a real
    matrix in a basis of the algebra, the derivative is `U J^{-T} G`.
    """
    dtype = U.dtype
    A, U, G = (x.to(torch.complex128) for x in (A, U, G))
    basis = make_generators(A.shape[-1]).to(A.device)
    by_basis = torch.einsum("aij,...ij->...a", basis.conj_physical(), A).real
    ad = torch.einsum(
        "...a,acb->...bc", by_basis, _compute_structure_constants(A.shape[-1]).to(A.device)
    )
    one = torch.eye(len(basis), dtype=ad.dtype, device=A.device).expand_as(ad)
    zero = torch.zeros_like(ad)
    block = torch.cat([torch.cat([-ad, one], -1), torch.cat([zero, zero], -1)], -2)
    J = torch.matrix_exp(block)[..., : len(basis), len(basis) :]
    g = torch.einsum("aij,...ij->...a", basis.conj_physical(), G).real
    x = torch.linalg.solve(J.mT, g)
    return (U @ torch.einsum("...a,aij->...ij", x.to(basis.dtype), basis)).to(dtype)


@cache
def make_generators(n_colours: int) -> Tensor:
    """Return a basis of su(N), `(N^2 - 1, N, N)`, with `tr T_a^dagger T_b = delta_ab`."""
    generators = []
    for j in range(n_colours):
        for i in range(j):
            for entries in ((1, -1), (1j, 1j)):
                T = torch.zeros(n_colours, n_colours, dtype=torch.complex128)
                T[i, j], T[j, i] = torch.tensor(entries, dtype=T.dtype)
                generators.append(T / 2**0.5)
        if j:
            diagonal = torch.tensor([1.0] * j + [-j] + [0] * (n_colours - j - 1))
            generators.append(torch.diag(1j * diagonal.double() / (j * (j + 1)) ** 0.5))
    return torch.stack(generators)


@cache
def _compute_structure_constants(n_colours: int) -> Tensor:
    """Return f of `[T_a, T_b] = sum_c f[a, b, c] T_c`."""
    T = make_generators(n_colours)
    product = torch.einsum("aij,bjk->abik", T, T)
    commutator = product - product.transpose(0, 1)
    return torch.einsum("cij,abij->abc", T.conj_physical(), commutator).real
