"""Samples of any kind: downloads, HDF5 sources, duplicates by content, and splits."""
