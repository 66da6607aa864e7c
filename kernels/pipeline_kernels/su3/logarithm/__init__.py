"""The logarithm from the group SU(N) to the algebra su(N), N = 2 or 3: the shortest one.

    log(U) = sum_k i theta_k P_k,    U = sum_k exp(i theta_k) P_k

with the angles in the canonical cell. Its derivative multiplies what `U^dagger dU` is between
the eigenvectors i and j by `x cot x - i x`, x = (theta_i - theta_j) / 2.
"""

from pipeline_kernels.su3.logarithm.op import logarithm

__all__ = ["logarithm"]
