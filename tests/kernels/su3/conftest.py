"""Special unitary matrices made by torch.linalg, and the group's generators."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor


def _draw_unitary(n: int, n_colours: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(n, n_colours, n_colours, generator=generator, dtype=torch.complex128)
    Q, R = torch.linalg.qr(normal)
    phases = R.diagonal(dim1=-2, dim2=-1)
    Q = Q * (phases / phases.abs())[:, None, :]
    return Q / torch.linalg.det(Q)[:, None, None] ** (1 / n_colours)


def _draw_with_angles(angles: Tensor, seed: int = 0) -> Tensor:
    """Matrices with chosen eigenangles `(n, N)` and random eigenvectors."""
    V = _draw_unitary(len(angles), angles.shape[1], seed)
    return (V * torch.polar(torch.ones_like(angles), angles)[:, None, :]) @ V.mH


def _make_generators(n_colours: int) -> Tensor:
    """Hermitian, traceless, with `tr T_a T_b = 2 delta_ab`."""
    result = []
    for i in range(n_colours):
        for j in range(i):
            for entry in (1, 1j):
                T = torch.zeros(n_colours, n_colours, dtype=torch.complex128)
                T[i, j], T[j, i] = entry, complex(entry).conjugate()
                result.append(T)
    for i in range(1, n_colours):
        diagonal = torch.tensor([1.0] * i + [-i] + [0.0] * (n_colours - i - 1))
        result.append(torch.diag(diagonal * math.sqrt(2 / (i * (i + 1)))).to(torch.complex128))
    return torch.stack(result)


def _turn(U: Tensor, x: Tensor) -> Tensor:
    """The matrices times `exp(i sum_a x_a T_a)`, for derivatives along the group."""
    A = torch.einsum("na,aij->nij", x.to(U.dtype), _make_generators(U.shape[-1]))
    return U @ torch.linalg.matrix_exp(1j * A)


@pytest.fixture(scope="session")
def unitary() -> Callable[..., Tensor]:
    """Matrices drawn from the Haar measure: `(n, n_colours, seed)`."""
    return _draw_unitary


@pytest.fixture(scope="session")
def with_angles() -> Callable[..., Tensor]:
    """Matrices with given angles: `(angles, seed)`."""
    return _draw_with_angles


@pytest.fixture(scope="session")
def generators() -> Callable[[int], Tensor]:
    """Generators of the group: `(n_colours)`."""
    return _make_generators


@pytest.fixture(scope="session")
def turned() -> Callable[[Tensor, Tensor], Tensor]:
    """Matrices times those of coordinates in the algebra: `(U, x)`."""
    return _turn
