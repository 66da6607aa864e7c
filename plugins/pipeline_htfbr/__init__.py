"""Potential energy surfaces in hierarchical Tucker form, fitted to points (HT-FBR)."""
