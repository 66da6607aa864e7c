"""Graphs by brute force: every image of every atom is tried."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest


def _find_edges(positions, cell, pbc, cutoff):
    """Return receivers and senders `(n_edges, 2)` and the vectors between them."""
    widths = 1 / np.linalg.norm(np.linalg.inv(cell), axis=0)
    spread = np.ptp(positions @ np.linalg.inv(cell), axis=0)
    reach = [
        int(np.ceil(cutoff / w + s)) if p else 0
        for w, s, p in zip(widths, spread, pbc, strict=True)
    ]
    edges, vectors = [], []
    for shift in product(*(range(-n, n + 1) for n in reach)):
        apart = positions[None] + np.array(shift) @ cell - positions[:, None]
        near = np.linalg.norm(apart, axis=-1) <= cutoff
        if not any(shift):
            np.fill_diagonal(near, False)
        edges.append(np.argwhere(near))
        vectors.append(apart[near])
    return np.concatenate(edges), np.concatenate(vectors)


@pytest.fixture(scope="session")
def edges_of() -> Callable:
    """All edges within a cutoff, those to images of an atom itself included."""
    return _find_edges


@pytest.fixture(scope="session")
def lattice() -> Callable:
    """A simple cubic lattice of spacing 1 Å with its nearest neighbours, periodic."""

    def made(*shape):
        places = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1).reshape(-1, 3)
        edges = [
            np.stack([np.arange(len(places)), np.ravel_multi_index(neighbours.T, shape)], 1)
            for step in (*np.eye(3, dtype=int), *-np.eye(3, dtype=int))
            for neighbours in [(places + step) % shape]
        ]
        return places + 0.25, np.diag(np.array(shape, float)), np.concatenate(edges)

    return made
