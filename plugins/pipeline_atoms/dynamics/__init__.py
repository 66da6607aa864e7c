"""Molecular dynamics with trained potentials: integrators, stored frames, restarts, analysis."""
