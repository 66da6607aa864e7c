"""CHGNet, the charge-informed graph network potential, as a plugin of pipeline-core."""
