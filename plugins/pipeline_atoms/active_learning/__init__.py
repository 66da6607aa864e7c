"""Active learning in rounds: exploring, picking, labelling."""
