"""The engine's own stages, one module each, for plugins that bring none."""
