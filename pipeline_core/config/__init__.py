"""Dataset and experiment files as strict models."""
