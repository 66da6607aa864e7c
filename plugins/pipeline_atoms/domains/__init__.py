"""Domain decomposition of a structure: owners of atoms, ghost atoms, and exchanges between them."""
