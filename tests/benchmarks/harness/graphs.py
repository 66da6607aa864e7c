"""Structures with their neighbour graphs, as plugins take them."""

from collections.abc import Sequence

import ase
import numpy as np

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.graphs import build_graph


def build_samples(structures: Sequence[ase.Atoms], **cutoffs: float) -> list[dict[str, np.ndarray]]:
    """Return structures with their graphs.

    Args:
        structures: Of one batch.
        **cutoffs: Of the graphs, Å, by the names of `GraphOptions`.
    """
    samples = []
    for atoms in structures:
        sample = {
            "atomic_numbers": atoms.numbers,
            "positions": atoms.positions,
            "cell": np.array(atoms.cell),
            "pbc": np.array(atoms.pbc),
        }
        samples.append(sample | build_graph(sample, GraphOptions(**cutoffs)))
    return samples
