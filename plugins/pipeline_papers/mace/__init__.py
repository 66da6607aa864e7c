"""MACE trained on many GPUs (arXiv:2504.10700)."""
