"""PaiNN, equivariant message passing, a plugin of pipeline-core."""
