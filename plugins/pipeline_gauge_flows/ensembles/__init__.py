"""Ensembles of link configurations: Markov chains, files, and what is measured of them."""
