"""The network: irreducible representations, messages, heads."""
