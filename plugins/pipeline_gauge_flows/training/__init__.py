"""Training: divergences and configurations."""
