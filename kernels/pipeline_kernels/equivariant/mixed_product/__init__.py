"""The tensor product whose weights are a linear map of features, which edges share.

    w_rp = sum_k x_rk A_kp,    out_i = sum over edges e into i of sum_p w_r(e)p C_p h_s(e) Y_e

It is, for each channel, the last layer of a radial network and the product behind it
(`tensor_product`). Both edges of a pair have one distance, so one row r of weights. These are kept;
their change along a direction, and derivatives by them, are made for some rows where they are used,
in the caches, and mapped at once: both are as large as the weights, larger than all else that edges
have.

Where | How
----- | -----------------------------------------------------------------
CPU   | `cpu`: C
GPU   | the tensor product with weights of all edges
"""

from pipeline_kernels.equivariant.mixed_product import reference
from pipeline_kernels.equivariant.mixed_product.graph import Graph
from pipeline_kernels.equivariant.mixed_product.op import mix_weights, mixed_product

__all__ = ["Graph", "mix_weights", "mixed_product", "reference"]
