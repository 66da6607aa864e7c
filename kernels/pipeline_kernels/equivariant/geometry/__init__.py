"""The geometry of edges for a network whose radial weights are splines, and its reverse.

Of the vector v of an edge, from receiver to sender,

    r = |v|,   u = -v / r,   Y = harmonics of u,   x = r n / cutoff,

with n intervals between knots up to the cutoff; x lies in the interval k = floor(x), and factors of
its six rows are the Hermite polynomials of x - k (`tensor_product/interpolated.py`). Derivatives of
solid harmonics are solid harmonics of one degree less, dY_a / du_k = sum_b D[k, a, b] Y_b, so that
with b_a = dE/dY_a and b_x = dE/dx

    d_k = sum_ab b_a D[k, a, b] Y_b,   dE/dv = -(b_x n / cutoff) u - (d - (d·u) u) / r.
"""

from pipeline_kernels.equivariant.geometry.edges import Geometry, Knots, measure, reverse

__all__ = ["Geometry", "Knots", "measure", "reverse"]
