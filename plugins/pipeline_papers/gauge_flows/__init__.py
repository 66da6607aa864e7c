"""Normalizing flows for 4d gauge theories (Abbott et al., arXiv:2502.00263)."""
