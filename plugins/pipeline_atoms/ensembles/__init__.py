"""Ensembles of models: joint predictions, and calibrated errors of them."""
