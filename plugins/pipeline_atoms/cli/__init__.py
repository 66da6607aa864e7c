"""Commands of `pipeline-core` for potentials and structures, one module each."""
