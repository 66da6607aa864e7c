"""The exponential from the algebra su(N) to the group SU(N), N = 2 or 3.

    exp(A) = f_0 + f_1 h + f_2 h^2,    h = -i A Hermitian and traceless,

where the coefficients f depend on the invariants of h alone, by `h^N = c_0 + .. + c_(N-2) h^(N-2)`.
"""

from pipeline_kernels.su3.exponential.op import exponential

__all__ = ["exponential"]
