"""Matrices of SU(2) and SU(3): projections, exponentials, staples, eigenangles, and maps of these.

No routine calculates an eigenvector. Eigenvalues come from the characteristic polynomial without
cancellation, functions of matrices are polynomials of them, and derivatives are written so that
nothing is divided by a difference of eigenvalues or singular values: inputs where these are equal
are as good as any. Arithmetic is double also where links are complex64, but for that of staples.
"""

from pipeline_kernels.su3.angles import eigenangles
from pipeline_kernels.su3.exponential import exponential, logarithm
from pipeline_kernels.su3.haar import haar
from pipeline_kernels.su3.projection import polar, project
from pipeline_kernels.su3.spectral import spectral_map
from pipeline_kernels.su3.staples import plaquette_staples, staple_layer

__all__ = [
    "eigenangles",
    "exponential",
    "haar",
    "logarithm",
    "plaquette_staples",
    "polar",
    "project",
    "spectral_map",
    "staple_layer",
]
