"""Wilson quarks (Dirac operator: `pipeline_kernels.dirac`): solver, determinants, mesons."""
