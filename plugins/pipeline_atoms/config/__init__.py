"""The sections `graph` and `infer` of experiments with potentials."""
