"""The shared evaluation."""
