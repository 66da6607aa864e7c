"""Rounds in which a model asks for labels: exploring, picking, labelling."""
