"""Kernels of networks whose features rotate with the structure."""
