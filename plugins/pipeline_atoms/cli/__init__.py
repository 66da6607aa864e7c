"""Commands for potentials and structures, one module each, which `pipeline-core` shows."""
