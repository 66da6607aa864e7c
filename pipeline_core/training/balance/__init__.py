"""Sample costs, and the sharing of a step's work between ranks."""
