"""Conformance classes of potentials, and small data to try them on."""
