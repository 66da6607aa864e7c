"""Attention over the elements of each segment: a softmax of logits, and the sum that it weights.

For head h, element e of segment s(e), and with w[r, h, c] the channels of a head side by side,

    a[e, h] = exp(z[e, h]) / sum_{e': s(e') = s(e)} exp(z[e', h]),
    out[i, r, h, c] = sum_{e: s(e) = i} a[e, h] v[e, r, h, c],

the exponent being taken from the largest logit of the segment. With g = dL/d out,

    dv[e] = a[e] g[s(e)],    da[e, h] = sum_{r c} g[s(e), r, h, c] v[e, r, h, c],
    dz[e, h] = a[e, h] (da[e, h] - sum_{e'} a[e', h] da[e', h]).
"""

from pipeline_kernels.message.softmax.op import segment_softmax, softmax_sum

__all__ = ["segment_softmax", "softmax_sum"]
