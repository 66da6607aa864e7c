"""Functions in hierarchical Tucker form, and their derivatives by parameters.

A binary tree over the dimensions holds at each leaf t a set of univariate functions u_t, at each
interior node a transfer tensor B_t. The nodes combine their children (Z. Qiu, F. Magoulès,
D. Peláez, doi:10.4203/ccc.12.2.4, eq. 13, for one sample, where the integral of eq. 11 drops out),

    u_t[k] = sum_ij u_l[i] u_r[j] B_t[i, j, k],

up to the root, whose single function is the value f. With g_root = dL/df the derivatives run back,

    dB_t[i, j, k] = sum_n u_l[i] u_r[j] g_t[k],
    g_l[i] = sum_jk B_t[i, j, k] u_r[j] g_t[k],      g_r[j] = sum_ik B_t[i, j, k] u_l[i] g_t[k].

Samples lie contiguously, so that a processor treats several at once.
"""

from pipeline_kernels.tree.op import Linear, contract, jacobian
from pipeline_kernels.tree.shape import Node, TreeShape

__all__ = ["Linear", "Node", "TreeShape", "contract", "jacobian"]
