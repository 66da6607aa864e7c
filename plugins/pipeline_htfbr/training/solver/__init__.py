"""Solver of HT-FBR, an alternative to long gradient descents.

1. `ridge`: a linear fit by products of leaf functions; degree, terms and penalty by validation.
2. `hsvd`: the coefficients in hierarchical Tucker form, by singular value decompositions.
3. `newton`: damped Gauss-Newton steps on the tree, stopped by validation.
"""

from pipeline_htfbr.training.solver.solve import solve_surface

__all__ = ["solve_surface"]
