"""The network of CHGNet: layers, bases, heads."""
