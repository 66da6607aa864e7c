"""The engine's own stages, one module each, used where a plugin brings none."""
