"""Gauge flows: normalizing flows for SU(N) lattice gauge theory, beside exact sampling."""
