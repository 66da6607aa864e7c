"""Eigenangles of SU(2) and SU(3) matrices in the canonical cell.

    U = sum_k exp(i theta_k) P_k,    sum_k theta_k = 0,  theta_1 >= .. >= theta_N >= theta_1 - 2 pi

The gradient of `sum_k w_k theta_k` is `sum_k i w_k z_k P_k`, traceless, with the eigenvalues `z_k`.
"""

from pipeline_kernels.su3.angles.op import eigenangles

__all__ = ["eigenangles"]
