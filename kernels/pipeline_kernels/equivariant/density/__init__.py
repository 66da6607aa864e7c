"""The density of atoms around the middle of each edge, in a basis of harmonics.

    A_e[lm, k n] = sum over atoms a of kind k of f(r) g_n(s) R_lm(u),   r = |r_a - middle of e|

with s = sqrt(r^2 + 1 Å^2) - 1 Å, which is smooth where an atom is just in the middle, Gaussians
g_n(s) = exp(-(s / w - n)^2 / 2), n = 0, ..., N - 1, of width w = s(cutoff) / N, with
f(r) = (1 - (r / cutoff)^2)^2 and solid harmonics R of u = (r_a - middle) / (s + 1 Å). The two atoms
that the edge joins are left out.

An element of a matrix between orbitals of two atoms depends most on what is between them:
ACEhamiltonians (L. Zhang et al., npj Comput. Mater. 8, 158 (2022)) describes pairs in this way.

The atoms are found among the neighbours of the receiver, so a graph that reaches to twice the
cutoff has them all, and a rank that has all edges of an atom needs no other's.

Where         | How
------------- | -------------------------------------------------------
CPU           | `cpu`: C, an edge at a time
elsewhere     | `reference`: PyTorch, a limited number of pairs of edges at a time
"""

from pipeline_kernels.equivariant.density.basis import DensityBasis
from pipeline_kernels.equivariant.density.op import bond_density

__all__ = ["DensityBasis", "bond_density"]
