"""The channelwise tensor product of MACE, gather and scatter fused.

Features h of the sender of each edge are multiplied with spherical harmonics Y of the edge along
paths p = (l1, l2, l3), weighted for each channel c, and summed at the receiver (Firoz et al.,
arXiv:2504.10700, algorithm 2; normalised as e3nn's `TensorProduct` with the connections `uvu`):

    out_i[p, m3, c] = sum_{e: r(e) = i} w_e[p, c] sum_{m1 m2} C_p[m1, m2, m3] h_s(e)[m1, c] Y_e[m2],

with C_p = sqrt(2 l3 + 1) times the Clebsch-Gordan coefficients. Nothing as large as the products of
all edges is ever stored. With g = dL/d out the derivatives are

    dh_j[m1, c] = sum_{e: s(e) = j} sum_p w_e[p, c] sum_{m2 m3} C_p[m1, m2, m3] Y_e[m2] g[m3, c],
    dw_e[p, c]  = sum_{m1 m2 m3} C_p[m1, m2, m3] h[m1, c] Y_e[m2] g[p, m3, c],
    dY_e[m2]    = sum_{p c} w_e[p, c] sum_{m1 m3} C_p[m1, m2, m3] h[m1, c] g[p, m3, c].
"""

from pipeline_kernels.equivariant.tensor_product.op import tensor_product
from pipeline_kernels.equivariant.tensor_product.parts import multiply_in_parts
from pipeline_kernels.equivariant.tensor_product.plan import Path, ProductPlan

__all__ = ["Path", "ProductPlan", "multiply_in_parts", "tensor_product"]
