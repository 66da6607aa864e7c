"""Time and memory of large structures, projected to many ranks."""
