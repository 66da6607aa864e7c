"""Ensembles of link configurations: Markov chains, files, and measurements."""
