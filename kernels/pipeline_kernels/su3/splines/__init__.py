"""Monotone rational-quadratic splines of [0, 1] onto itself (Durkan et al., arXiv:1906.04032).

In a bin with corner (X, Y), width w and height h, and with slopes d_0 and d_1 at its ends,

    F(x) = Y + h (s xi^2 + d_0 xi eta) / (s + (d_0 + d_1 - 2 s) xi eta),
    xi = (x - X) / w,    eta = 1 - xi,    s = h / w.

All is calculated from what differs from the identity, sigma = s - 1 and e = d - 1, so that small
changes keep their digits and none at all is exactly none:

    F(x) - x = Y - X + w xi T / D,    D = 1 + sigma + kappa xi eta,    kappa = e_0 + e_1 - 2 sigma,
    T = (1 + sigma) (sigma xi + e_0 eta) - kappa xi eta.

Points above 1/2 are mirrored, so that the distance from the end keeps its digits at both.

They are a part of the spectral map and no operator of their own: `native.c` and `cuda.py` are what
the kernels of that map stand on.
"""

from pipeline_kernels.su3.splines.reference import (
    MIN_SLOPE,
    MIN_WIDTH,
    Spline,
    count_bins,
    evaluate_spline,
)

__all__ = ["MIN_SLOPE", "MIN_WIDTH", "Spline", "count_bins", "evaluate_spline"]
