"""Structures with their graphs as the network takes them, and networks of random weights."""

import numpy as np
import torch
from ase.data import atomic_numbers as number_of

from pipeline_atoms.graphs import build_neighbour_graph
from pipeline_atoms.structure import Structure
from pipeline_core.batch import collate
from pipeline_core.fields import FIELDS
from pipeline_egnn_esp.data.samples import REVERSE_EDGE
from pipeline_egnn_esp.model.network import Network
from pipeline_egnn_esp.options import ESPOptions

OWN_FIELDS = {REVERSE_EDGE.name: REVERSE_EDGE}


def make_network(basis, cutoff, **options):
    """Return a small network of two layers, in double precision."""
    sizes = {"channels": 4, "lmax": 2 * basis.lmax, "layers": 2, "radial_functions": 6}
    sizes |= {"attention_channels": 3, "value_channels": 2, "hidden_channels": 3}
    sizes |= {"feed_forward_channels": 5}
    torch.manual_seed(0)
    return Network(ESPOptions(**sizes | options), basis, cutoff).double()


def sample(symbols, positions, cell, cutoff, pbc=(True, True, True)):
    """Return a structure with its graph, as arrays."""
    cell = np.asarray(cell, float)
    edge_index, edge_shift, _ = build_neighbour_graph(positions, cell, np.array(pbc), cutoff)
    return {
        "cell": cell,
        "pbc": np.array(pbc),
        "atomic_numbers": np.array([number_of[symbol] for symbol in symbols]),
        "positions": np.asarray(positions, float),
        "edge_index": edge_index,
        "edge_shift": edge_shift,
        "reverse_edge": find_opposite(edge_index, edge_shift),
    }


def read_structure(sample):
    """Return a structure without its graph."""
    return Structure(*(sample[name] for name in ("atomic_numbers", "positions", "cell", "pbc")))


def find_opposite(edge_index, edge_shift):
    """Return the number of the edge (j, i, -R) of each edge (i, j, R)."""
    ends = [tuple(map(int, edge)) for edge in np.concatenate([edge_index, edge_shift], axis=1)]
    numbers = {edge: number for number, edge in enumerate(ends)}
    reverse = [numbers[j, i, -a, -b, -c] for i, j, a, b, c in ends]
    return np.array(reverse, dtype=np.int64)


def collate_samples(*samples, dtype=torch.float64):
    """Return structures as one batch."""
    return collate(samples, dtype, FIELDS | OWN_FIELDS)


def pack_grid(symbols, widths, cutoff, seed=0, spacing=2.2):
    """Return atoms near the points of a grid in a skewed periodic cell."""
    rng = np.random.default_rng(seed)
    points = np.stack(np.meshgrid(*map(np.arange, widths), indexing="ij"), -1).reshape(-1, 3)
    shear = np.array([[1.0, 0, 0], [0.2, 1, 0], [-0.1, 0.15, 1]])
    positions = spacing * (points + rng.uniform(-0.2, 0.2, points.shape)) @ shear
    chosen = [symbols[k % len(symbols)] for k in range(len(points))]
    cell = spacing * np.array(widths)[:, None] * shear
    return sample(chosen, positions, cell, cutoff)
