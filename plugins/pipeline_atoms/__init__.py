"""Interatomic potentials: what models of atoms share, from raw files to molecular dynamics."""
