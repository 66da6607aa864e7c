"""CHGNet: a graph neural network potential with magnetic moments."""
