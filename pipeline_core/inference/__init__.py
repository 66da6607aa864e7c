"""Use of trained potentials: ASE calculator and molecular dynamics."""
