"""Steps of links along the gradient of loops, with the logarithm of their determinant.

    U' = exp(g) U,    g = the part of U Sigma^dagger in the algebra,    Sigma = sum_k w_k S_k

stout smearing of one link whose neighbours S are held fixed, forth and back.
"""

from pipeline_kernels.su3.residual.op import residual_step

__all__ = ["residual_step"]
