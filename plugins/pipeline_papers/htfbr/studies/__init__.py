"""Baseline of the paper, and data parallel epochs on several devices."""
