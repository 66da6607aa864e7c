"""Products of a tall matrix: a linear map of the features of many edges, and its derivatives.

    y = x A,    dL/dx = g A^T,    dL/dA = x^T g

with x of (n, K) and A of (K, N), where n is far greater than both. Libraries of linear algebra are
made for matrices that are large both ways: a map to the radial weights of a tensor product, whose
result is larger than the caches, takes them twice as long as its operations need. Here the result
goes past the caches to memory, and sums over all edges stay in them.

The first and the second are one operator, the third another one; each is made of these two when it
is differentiated, as often as one likes.
"""

from pipeline_kernels.message.tall.op import multiply_tall

__all__ = ["multiply_tall"]
