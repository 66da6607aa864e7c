"""Ranks: which process this is, how they find each other, and what they do together."""
