"""Projection of complex matrices to SU(N), N = 2 or 3.

The unitary factor U of `M = U P`, `P = (M^dagger M)^(1/2)`, is what `U V^dagger` is in a singular
value decomposition. It is calculated by Newton's iteration, whose error grows with the condition of
M and not with its square, as that of `M (M^dagger M)^(-1/2)` would; its derivative divides by sums
of singular values only, so nothing happens where they are equal.
"""

from pipeline_kernels.su3.projection.op import project

__all__ = ["project"]
