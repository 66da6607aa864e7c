"""The section `infer` of experiments with potentials."""
