"""The network of MACE: layers, bases, heads."""
