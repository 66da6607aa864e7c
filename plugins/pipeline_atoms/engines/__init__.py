"""Trained potentials in other simulation programs, each through our ASE calculator."""
