"""A feed-forward layer of equivariant features after their norm, added to them.

Features are `(n, (lmax + 1)^2, C)`, components by degree, channels last. With the norm z of x

    y_l = U_l z_l,    s = (y_0, G z_0 + b),    x' = x + V_l (sigmoid(s_l) y_l)

where biases are added in degree 0 and each s_l has a number for each hidden channel: SiLU of true
scalars, gates for all others (M. Weiler et al., NeurIPS 2018, arXiv:1807.02547). The norm is

    z_0 = LayerNorm(x_0),    z_l = a_l x_l / sqrt(mean(x_l^2) + 1e-5)    for l > 0,

the mean being over channels, components, and degrees above 0, which count the same. Channels behind
the first of degree 0 may be scalars that reflections change: they have a gate instead of SiLU, and
are divided as for l > 0.
"""

from pipeline_kernels.equivariant.feed_forward.op import feed_forward, normalise
from pipeline_kernels.equivariant.feed_forward.reference import Weights

__all__ = ["Weights", "feed_forward", "normalise"]
