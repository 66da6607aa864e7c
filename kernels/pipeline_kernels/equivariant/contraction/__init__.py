"""Products of the features of an atom that rotate as chosen representations: the basis of MACE.

From features `A[i]` of an atom of element z, in each channel alone, follow the outputs (I. Batatia
et al., arXiv:2206.07697, eqs. 10 and 11)

    B[o] = sum_nu sum_k W[z, nu, k] sum_{i1 ... inu} U[o, i1 ... inu, k] A[i1] ... A[inu],

with generalised Clebsch-Gordan coefficients U and weights W. Since the factors commute, most of U
is the same many times: the sums over i and k form a polynomial,

    B[o] = sum_t c[z, t] A[i_t] A[j_t] A[k_t],      c[z, t] = sum_k S[t, k] W[z, k],

with one term t for each output and distinct product (410 where U has 3281 entries: outputs 0e + 1o,
inputs up to l = 3, three factors). `combine_coefficients` makes c, for each element that occurs;
`contract` evaluates the polynomial.
"""

from pipeline_kernels.equivariant.contraction.op import (
    combine_coefficients,
    contract,
    differentiate_contraction,
)
from pipeline_kernels.equivariant.contraction.plan import AtomsByElement, Block, Polynomial

__all__ = [
    "AtomsByElement",
    "Block",
    "Polynomial",
    "combine_coefficients",
    "contract",
    "differentiate_contraction",
]
