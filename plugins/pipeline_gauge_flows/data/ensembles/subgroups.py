"""Small matrices, and updates of one link through the SU(2) subgroups of SU(N), in numba.

A quaternion (q0, q1, q2, q3) stands for the matrix q0 + i (q1 s1 + q2 s2 + q3 s3) with the Pauli
matrices s. The closing C of a link U is its weighted staple sum: S = -(1/N) Re tr(U C) + terms
independent of U.
"""

from math import cos, expm1, log, log1p, pi, sin, sqrt

import numpy as np
from numpy.typing import NDArray

from pipeline_gauge_flows.data.ensembles.philox import Key, Stream, draw_uniforms
from pipeline_kernels.jit import njit

Matrix = NDArray[np.complex128]
"""(N, N)."""
Quaternion = tuple[float, float, float, float]
Tables = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]
"""Weights of the planes (D, D), sites x + mu and x - mu, (D, V) each."""

_KENNEDY_PENDLETON = 1.7
"""Concentration above which their method needs fewer draws than Creutz's."""
_FLAT = 1e-9
"""Concentration below which the distribution equals Haar's in double precision."""


@njit(nogil=True, inline="always")
def multiply(a: Matrix, b: Matrix, out: Matrix) -> None:
    """Write a b to `out`."""
    n = a.shape[0]
    for i in range(n):
        for j in range(n):
            total = a[i, 0] * b[0, j]
            for k in range(1, n):
                total += a[i, k] * b[k, j]
            out[i, j] = total


@njit(nogil=True, inline="always")
def multiply_dagger(a: Matrix, b: Matrix, out: Matrix) -> None:
    """Write a b^dag to `out`."""
    n = a.shape[0]
    for i in range(n):
        for j in range(n):
            total = a[i, 0] * b[j, 0].conjugate()
            for k in range(1, n):
                total += a[i, k] * b[j, k].conjugate()
            out[i, j] = total


@njit(nogil=True, inline="always")
def multiply_adjoint(a: Matrix, b: Matrix, out: Matrix) -> None:
    """Write a^dag b to `out`."""
    n = a.shape[0]
    for i in range(n):
        for j in range(n):
            total = a[0, i].conjugate() * b[0, j]
            for k in range(1, n):
                total += a[k, i].conjugate() * b[k, j]
            out[i, j] = total


@njit(nogil=True, inline="always")
def sum_staples(
    links: Matrix, tables: Tables, mu: int, x: int, total: Matrix, room: tuple[Matrix, Matrix]
) -> None:
    """Write the weighted sum of the staples, which transform like U_mu(x), to `total`.

    Args:
        links: (D, V, N, N).
        tables: Weights of the planes, and neighbours.
        mu: Direction of the link.
        x: Site of the link.
        total: (N, N), written.
        room: Work space, two (N, N).
    """
    weights, forward, backward = tables
    first, second = room
    total[:] = 0
    y = forward[mu, x]
    for nu in range(links.shape[0]):
        if nu != mu:
            multiply(links[nu, x], links[mu, forward[nu, x]], first)
            multiply_dagger(first, links[nu, y], second)
            z = backward[nu, x]
            multiply_adjoint(links[nu, z], links[mu, z], first)
            for i in range(total.shape[0]):
                for j in range(total.shape[0]):
                    total[i, j] += weights[mu, nu] * second[i, j]
            multiply(first, links[nu, forward[mu, z]], second)
            for i in range(total.shape[0]):
                for j in range(total.shape[0]):
                    total[i, j] += weights[mu, nu] * second[i, j]


@njit(nogil=True, inline="always")
def extract_quaternion(m: Matrix, i: int, j: int) -> Quaternion:
    """Return the quaternion r with Re tr(q r) = Re tr(q m_ij) for every q in SU(2)."""
    return (
        (m[i, i].real + m[j, j].real) / 2,
        (m[i, j].imag + m[j, i].imag) / 2,
        (m[i, j].real - m[j, i].real) / 2,
        (m[i, i].imag - m[j, j].imag) / 2,
    )


@njit(nogil=True, inline="always")
def multiply_quaternions(a: Quaternion, b: Quaternion) -> Quaternion:
    """Return the product of two quaternions."""
    return (
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] - a[2] * b[3] + a[3] * b[2],
        a[0] * b[2] + a[2] * b[0] - a[3] * b[1] + a[1] * b[3],
        a[0] * b[3] + a[3] * b[0] - a[1] * b[2] + a[2] * b[1],
    )


@njit(nogil=True, inline="always")
def rotate_rows(q: Quaternion, m: Matrix, i: int, j: int) -> None:
    """Multiply m from the left by the quaternion q in the subgroup (i, j)."""
    a, b = complex(q[0], q[3]), complex(q[2], q[1])
    for k in range(m.shape[0]):
        upper, lower = m[i, k], m[j, k]
        m[i, k] = a * upper + b * lower
        m[j, k] = a.conjugate() * lower - b.conjugate() * upper


@njit(nogil=True)
def draw_cosine(concentration: float, draw: int, stream: Stream, key: Key) -> tuple[float, int]:
    """Draw x in [-1, 1] with density sqrt(1 - x^2) exp(concentration x).

    By Kennedy and Pendleton, Phys. Lett. B 156, 393 (1985), or, for a low concentration,
    by Creutz, Phys. Rev. D 21, 2308 (1980).

    Returns:
        x and the number of the next draw.
    """
    while True:
        if concentration > _KENNEDY_PENDLETON:
            u, v = draw_uniforms(draw, stream, key)
            w, accept = draw_uniforms(draw + 1, stream, key)
            draw += 2
            c = cos(2 * pi * v)
            delta = -(log(u) + c * c * log(w)) / concentration
            if accept * accept <= 1 - delta / 2:
                return 1 - delta, draw
        else:
            u, accept = draw_uniforms(draw, stream, key)
            draw += 1
            if concentration > _FLAT:
                x = 1 + log1p((1 - u) * expm1(-2 * concentration)) / concentration
            else:
                x = 2 * u - 1
            if accept * accept <= 1 - x * x:
                return x, draw


@njit(nogil=True)
def draw_quaternion(
    concentration: float, draw: int, stream: Stream, key: Key
) -> tuple[Quaternion, int]:
    """Draw q in SU(2) with density exp(concentration q0) relative to Haar.

    Returns:
        q and the number of the next draw.
    """
    x, draw = draw_cosine(concentration, draw, stream, key)
    u, v = draw_uniforms(draw, stream, key)
    z, phi = 2 * u - 1, 2 * pi * v
    rest = sqrt(max(0.0, 1 - x * x))
    across = rest * sqrt(max(0.0, 1 - z * z))
    return (x, across * cos(phi), across * sin(phi), rest * z), draw + 1


@njit(nogil=True)
def draw_heatbath_link(u: Matrix, m: Matrix, stream: Stream, key: Key) -> None:
    """Redraw a link in each SU(2) subgroup in turn (Cabibbo and Marinari).

    Phys. Lett. B 119, 387 (1982).

    Args:
        u: The link, changed in place.
        m: u times its closing, updated with u.
        stream: Stream of random numbers.
        key: Key of random numbers.
    """
    n, draw = u.shape[0], 0
    for i in range(n - 1):
        for j in range(i + 1, n):
            r = extract_quaternion(m, i, j)
            size = sqrt(r[0] ** 2 + r[1] ** 2 + r[2] ** 2 + r[3] ** 2)
            q, draw = draw_quaternion(2 * size / n, draw, stream, key)
            if size > 0:
                q = multiply_quaternions(q, (r[0] / size, -r[1] / size, -r[2] / size, -r[3] / size))
            rotate_rows(q, u, i, j)
            rotate_rows(q, m, i, j)


@njit(nogil=True)
def reflect(u: Matrix, m: Matrix) -> None:
    """Reflect a link in each SU(2) subgroup at constant action.

    Creutz, Phys. Rev. D 36, 515 (1987); Brown and Woch, Phys. Rev. Lett. 58, 2394 (1987).
    """
    n = u.shape[0]
    for i in range(n - 1):
        for j in range(i + 1, n):
            r = extract_quaternion(m, i, j)
            square = r[0] ** 2 + r[1] ** 2 + r[2] ** 2 + r[3] ** 2
            if square > 0:
                back = (r[0], -r[1], -r[2], -r[3])
                q = multiply_quaternions(back, back)
                q = (q[0] / square, q[1] / square, q[2] / square, q[3] / square)
                rotate_rows(q, u, i, j)
                rotate_rows(q, m, i, j)


@njit(nogil=True)
def reunitarize(u: Matrix) -> None:
    """Remove rounding errors: orthonormalise the rows in turn, and set the determinant to 1."""
    n = u.shape[0]
    for i in range(n - 1):
        for j in range(i):
            overlap = 0j
            for k in range(n):
                overlap += u[j, k].conjugate() * u[i, k]
            for k in range(n):
                u[i, k] -= overlap * u[j, k]
        square = 0.0
        for k in range(n):
            square += u[i, k].real ** 2 + u[i, k].imag ** 2
        for k in range(n):
            u[i, k] /= sqrt(square)
    if n == 2:
        u[1, 0], u[1, 1] = -u[0, 1].conjugate(), u[0, 0].conjugate()
    else:
        for k in range(3):
            a, b = (k + 1) % 3, (k + 2) % 3
            u[2, k] = (u[0, a] * u[1, b] - u[0, b] * u[1, a]).conjugate()
