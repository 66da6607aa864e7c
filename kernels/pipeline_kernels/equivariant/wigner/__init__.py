"""Wigner matrices of edges: the rotation that turns each edge onto the polar axis.

Features are real spherical harmonics of e3nn on permuted vectors: a vector `(x, y, z)` of space
enters as `(y, z, x)`, so the components of degree 1 are `(y, z, x)`, the polar axis is the z axis
of space (the second of the three), and the orders of degree `l` are m = -l, ..., l: the order of
orbitals in CP2K and most codes with Gaussian bases.

With the permuted unit vector `n = (sin b sin a, cos b, sin b cos a)` the rotation of the edge is
`R_x(b)^T R_y(a)^T`, hence (D. Pinchon and P. E. Hoggan, J. Phys. A 40, 1597 (2007))

    D_l = J_l Z_l(-b) J_l Z_l(-a),

where `Z_l` turns about the polar axis, and `J_l = J_l^T = J_l^-1` swaps the first two axes and
turns the third round. The angle about the edge itself is not determined by its direction; it is 0
here. Where the edge lies on the polar axis, a = 0.

Where     | How
--------- | ------------------------------------------
CPU       | `cpu`: C, a few edges at a time
elsewhere | `reference`: PyTorch, a thousand at a time
"""

from pipeline_kernels.equivariant.wigner.op import compute_edge_frames
from pipeline_kernels.equivariant.wigner.reference import (
    PERMUTATION,
    build_axis_swap,
    count_entries,
    rotate,
)

__all__ = ["PERMUTATION", "build_axis_swap", "compute_edge_frames", "count_entries", "rotate"]
