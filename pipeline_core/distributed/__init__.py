"""Ranks: finding them, connecting them, and their collective operations."""
