"""The tensor product whose weights are a linear map of features of the edges,

    w_ep = sum_k x_ek A_kp,    out_i = sum over edges e into i of sum_p w_ep C_p h_s(e) Y_e

for each channel: the last layer of a radial network, and the product behind it
(`tensor_product`). Weights, their change along a direction, and derivatives by both are each larger
than all else that edges have. Here none of them is ever in memory: they are made for some edges
where they are used, in the caches, and again for each derivative.

Where | How
----- | -----------------------------------------------------------------
CPU   | `cpu`: C, for the edges of a receiver in turn
GPU   | `reference`: PyTorch, weights of all edges at once
"""

from pipeline_kernels.equivariant.mixed_product import reference
from pipeline_kernels.equivariant.mixed_product.op import mixed_product

__all__ = ["mixed_product", "reference"]
