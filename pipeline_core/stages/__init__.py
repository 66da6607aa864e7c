"""The engine's implementation of each stage, one module a stage, used where a plugin brings none."""
