"""Gauge flows: normalizing flows for SU(N) lattice gauge theory, and exact sampling."""
