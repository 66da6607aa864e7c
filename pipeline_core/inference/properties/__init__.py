"""Properties of materials from a trained potential: ASE, phonopy and pymatgen do the work."""
