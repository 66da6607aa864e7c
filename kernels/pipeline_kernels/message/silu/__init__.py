"""The activation of layers that run on the features of many edges, and its derivatives.

    y = z s,    silu'(z) = s (1 + z (1 - s)),    silu''(z) = s (1 - s) (2 + z (1 - 2 s))

with s = 1 / (1 + exp(-z)). Forces need the derivative of a network, and training on forces the
second one: along a direction d, g silu'(z) has the derivatives d silu'(z) by g and d g silu''(z) by
z. Autograd makes them of many operations, whose results it keeps. Here they are one pass, which
keeps nothing but its operands. The value and the first derivative are torch's, which is as fast.
"""

from pipeline_kernels.message.silu.op import silu

__all__ = ["silu"]
