"""Properties of materials from a trained potential: ASE, phonopy and pymatgen do the work."""

import spglib

# Avoids a deprecation warning of spglib in each call of ASE and pymatgen; phonopy sets it, too.
spglib.error.OLD_ERROR_HANDLING = False
