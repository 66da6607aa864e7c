"""Plugins that watch runs and change nothing."""
