"""Solvers and determinants of Wilson's Dirac operator (`pipeline_kernels.dirac`)."""
