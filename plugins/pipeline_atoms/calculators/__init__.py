"""ASE calculators of trained potentials: of one model, of an ensemble, and shared between ranks."""
