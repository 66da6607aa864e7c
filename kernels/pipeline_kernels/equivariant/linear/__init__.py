"""Linear maps of equivariant features, channels last: e3nn's `Linear`.

Each degree l is mapped by itself, all its components m alike,

    y[i, l m, d] = a_l sum over p, c of x[i, l p m, c] W_l[g(i), p c, d]

from its representations p, with numbers a_l and weights of a group of rows (the
atoms of an element) or of all. A plan counts the input representations of each degree.

All degrees and groups are one operator, and so are all derivatives by weights: small structures
have a few atoms of each element, for which it takes longer to call a product than to do it. The
derivative by features is the first operator with its weights transposed.

Where | How
----- | -----------------------------------------------------------------
CPU   | `cpu`: C, whose sums stay in registers
GPU   | `reference`: PyTorch, all groups in one product where that pays
"""

from pipeline_kernels.equivariant.linear import reference
from pipeline_kernels.equivariant.linear.op import differentiate_linear, equivariant_linear
from pipeline_kernels.equivariant.linear.plan import LinearPlan

__all__ = ["LinearPlan", "differentiate_linear", "equivariant_linear", "reference"]
