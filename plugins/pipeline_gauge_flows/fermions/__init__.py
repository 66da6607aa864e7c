"""Quarks on Wilson's Dirac operator (`pipeline_kernels.dirac`): solver, determinants, mesons."""
