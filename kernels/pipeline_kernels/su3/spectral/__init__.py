"""Maps of SU(2) and SU(3) matrices that move their eigenangles by splines and keep eigenvectors.

    L = sum_k exp(i theta_k) P_k  ->  W L = sum_k exp(i theta'_k) P_k

equivariant under conjugation, with the logarithm of their determinant on the group.
"""

from pipeline_kernels.su3.spectral.op import spectral_map

__all__ = ["spectral_map"]
