"""Special unitary matrices made by torch.linalg, and the group's generators."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

COLOURS = [2, 3]
TURN = 2 * math.pi


def draw_normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.complex128) -> Tensor:
    """Draw complex numbers with a normal distribution."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.complex128).to(dtype)


def draw_real(*shape: int, seed: int = 0) -> Tensor:
    """Draw real numbers with a normal distribution, float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def draw_unitary(n: int, n_colours: int, seed: int = 0) -> Tensor:
    """Draw matrices from the Haar measure, `(n, N, N)`."""
    Q, R = torch.linalg.qr(draw_normal(n, n_colours, n_colours, seed=seed))
    phases = R.diagonal(dim1=-2, dim2=-1)
    Q = Q * (phases / phases.abs())[:, None, :]
    return Q / torch.linalg.det(Q)[:, None, None] ** (1 / n_colours)


def draw_with_angles(angles: Tensor, seed: int = 0) -> Tensor:
    """Draw matrices with chosen eigenangles `(n, N)` and random eigenvectors."""
    V = draw_unitary(len(angles), angles.shape[1], seed)
    return (V * torch.polar(torch.ones_like(angles), angles)[:, None, :]) @ V.mH


def make_close_angles(n_colours: int, gap: float) -> Tensor:
    """Return angles of which two are so close on the circle, at all walls of the canonical cell."""
    half = gap / 2
    if n_colours == 2:
        pairs = [[half, -half], [math.pi - half, half - math.pi]]
        return torch.tensor(pairs, dtype=torch.float64)
    t = torch.tensor([0.9, -0.2, 1.8, -1.1, 0.4, math.pi - 0.01], dtype=torch.float64)
    above = torch.stack([t.abs(), half - t.abs() / 2, -half - t.abs() / 2], -1)
    outside = torch.stack([math.pi - half - t / 2, t, half - math.pi - t / 2], -1)
    return torch.cat([above, -above.flip(-1), outside[:5]])


def make_generators(n_colours: int) -> Tensor:
    """Return generators: Hermitian, traceless, with `tr T_a T_b = 2 delta_ab`."""
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


def turn(U: Tensor, x: Tensor) -> Tensor:
    """Return matrices times `exp(i sum_a x_a T_a)`, for derivatives along the group."""
    A = torch.einsum("na,aij->nij", x.to(U.dtype), make_generators(U.shape[-1]))
    return U @ torch.linalg.matrix_exp(1j * A)


def make_centre(n_colours: int) -> Tensor:
    """Return the elements of the centre, one first, `(N, N, N)`."""
    phases = torch.polar(torch.ones(n_colours), TURN * torch.arange(n_colours) / n_colours)
    return phases[:, None, None] * torch.eye(n_colours)


def join_centre(U: Tensor) -> Tensor:
    """Return the centre, matrices that roundings lead from one out of the group, and others."""
    centre = make_centre(U.shape[-1])
    noise = 1e-7 * draw_normal(50, *U.shape[1:])
    return torch.cat([centre, centre[:1] + noise, U])


def check_unitary(U: Tensor, limit: float = 1e-14) -> None:
    """Assert that matrices are unitary, and of determinant 1."""
    one = torch.eye(U.shape[-1]).to(U)
    torch.testing.assert_close(U @ U.mH, one.expand_as(U), rtol=0, atol=limit)
    det = torch.linalg.det(U)
    torch.testing.assert_close(det, torch.ones_like(det), rtol=0, atol=limit)


def measure_jacobian(move, U: Tensor, moved: Tensor, step: float = 1e-5) -> Tensor:
    """Return the Jacobian of a map of the group in coordinates of the algebra.

    By central differences, `(n, 3, 3)` or `(n, 8, 8)`.
    """
    T, columns = make_generators(U.shape[-1]), []
    for x in step * torch.eye(len(T), dtype=torch.float64):
        up, down = (move(turn(U, (s * x).expand(len(U), -1))) for s in (1, -1))
        change = moved.mH @ (up - down) / (2 * step)
        columns.append(torch.einsum("aij,nji->na", T, change).imag / 2)
    return torch.stack(columns, -1)


def make_tables(extents: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the numbers of the sites after and before each, `(D, V)`."""
    sites = torch.arange(math.prod(extents)).view(*extents)
    after, before = (
        torch.stack([sites.roll(by, d).flatten() for d in range(len(extents))]) for by in (-1, 1)
    )
    return after, before
