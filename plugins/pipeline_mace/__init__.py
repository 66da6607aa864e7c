"""MACE: an equivariant potential with products of neighbours (arXiv:2206.07697)."""
