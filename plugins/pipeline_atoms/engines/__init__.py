"""Trained potentials in the programs of others, each through an ASE calculator of ours."""
