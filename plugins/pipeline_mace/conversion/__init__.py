"""Files of mace-torch, read and written without it."""
