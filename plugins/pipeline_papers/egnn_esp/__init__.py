"""Distributed equivariant networks for large electronic structures (Kaniselvan et al., 2025)."""
