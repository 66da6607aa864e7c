"""Edge features of a network with constant weights, and gradients back to edge vectors.

    u = -v / r,    Y_lm = R_lm(u),    x = r s,    r = |v|

with the vector v from receiver to sender, real harmonics R in the order of e3nn (m = -l, ..., l
about the axis y) and the place of x between the knots of splines (`Places`). A function of Y and x
with the derivatives Y' and x' has

    dE/dv = -s x' u - (a - (a u) u) / r,    a_k = sum_lm Y'_lm dR_lm/du_k(u)

by v, where derivatives of harmonics are harmonics of one degree less (`harmonics`).

Where | How
----- | ---------------------------------------------------------------
CPU   | `cpu`: C, one pass there and one back
GPU   | `reference`: PyTorch
"""

from pipeline_kernels.equivariant.edges import reference
from pipeline_kernels.equivariant.edges.op import differentiate_edges, measure_edges
from pipeline_kernels.equivariant.edges.reference import EdgeMeasures

__all__ = ["EdgeMeasures", "differentiate_edges", "measure_edges", "reference"]
