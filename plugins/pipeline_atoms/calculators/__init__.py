"""ASE calculators of trained potentials: one model, a committee, or one model on several ranks."""
