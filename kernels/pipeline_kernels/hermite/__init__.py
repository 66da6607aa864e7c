"""Functions of one number as splines of degree five, for networks that are not trained any more.

Between knots at 0, 1, ..., n, at which values v, slopes d and curvatures s are given, and with t
from 0 to 1 within an interval,

    f = v0 H0(t) + d0 H1(t) + s0 H2(t) + v1 H3(t) + d1 H4(t) + s1 H5(t),

where H are the Hermite polynomials of degree five. f has two continuous derivatives, and misses a
smooth function by h^6 max|f^(6)| / 46080 for knots h apart. A table has three rows for each knot,
which are v, d and s with h as the unit, and a column for each function.

Where | How
----- | ----------------------------------
CPU   | `cpu`: C, one pass over the places
GPU   | `reference`: PyTorch
"""

from pipeline_kernels.hermite import reference
from pipeline_kernels.hermite.jets import Jet, expand_jet
from pipeline_kernels.hermite.op import differentiate_interpolation, interpolate
from pipeline_kernels.hermite.places import Places
from pipeline_kernels.hermite.tables import TOLERANCE, Fit, fit

__all__ = [
    "TOLERANCE",
    "Fit",
    "Jet",
    "Places",
    "differentiate_interpolation",
    "expand_jet",
    "fit",
    "interpolate",
    "reference",
]
