"""Training: the loss of matrices."""
