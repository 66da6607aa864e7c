"""Convolutions in the frames of edges: rotations about an edge only mix components of one order.

A message turned to the frame of its edge is a sum of components that a rotation about the edge
multiplies with exp(i m a). Linear maps that commute with all rotations then act on each order
m by itself (S. Passaro and C. L. Zitnick, ICML 2023, arXiv:2302.03655): they cost O(lmax^3) instead
of the O(lmax^6) of tensor products with harmonics, and with all orders kept they are the same maps.

    y_e  = P D_e (f_e [x_s(e), x_r(e), x_e])       gathered, scaled, rotated, sorted by m
    z_e  = W y_e                                   so2_linear; both at once: so2_convolution
    x'_i = sum_{e: r(e) = i} f'_e D_e^T P^T z_e    from_edges: scaled, rotated back, summed

with Wigner matrices D_e made once per structure by `equivariant.wigner.compute_edge_frames`.

A reflection in a plane through the edge changes the sign of components of orders m < 0 of features
that reflections change as they do harmonics (natural parity), and of m > 0 and 0 of features with
the other sign (unnatural). Where the latter are stored turned by a quarter,

    (y_m, y_-m) -> (y_-m, -y_m)    for m > 0,

it changes the sign of the same rows of both, but for m = 0. So a linear map of m > 0 commutes with
reflections if it is one real matrix for the rows of m and of -m, in half as many
multiplications.
"""

from pipeline_kernels.equivariant.so2.convolution import (
    Table,
    compute_gate_factors,
    so2_convolution,
    so2_linear,
)
from pipeline_kernels.equivariant.so2.layout import Layout
from pipeline_kernels.equivariant.so2.op import from_edges

__all__ = [
    "Layout",
    "Table",
    "compute_gate_factors",
    "from_edges",
    "so2_convolution",
    "so2_linear",
]
