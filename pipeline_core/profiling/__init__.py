"""Time and memory of training steps: measured, fitted, and projected to other numbers of ranks."""
