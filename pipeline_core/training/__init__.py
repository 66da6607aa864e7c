"""The shared trainer."""
