"""Figures of dynamics and of properties of materials."""
