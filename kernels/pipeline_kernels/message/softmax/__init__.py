"""Softmax of the logits of each segment, as of attention over the edges of an atom.

For head h and element e of segment s(e),

    a[e, h] = exp(z[e, h]) / sum_{e': s(e') = s(e)} exp(z[e', h]),

the exponent being taken from the largest logit of the segment.
"""

from pipeline_kernels.message.softmax.op import segment_softmax

__all__ = ["segment_softmax"]
