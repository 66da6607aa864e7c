"""FastCHGNet: CHGNet trained on many GPUs (Zhou et al., arXiv:2412.20796)."""
