"""Neighbour graphs and bond graphs of structures.

Edges are directed and image-resolved: edge (i, j, S) means that atom j in cell S is a neighbour of
atom i; its vector is r_j + S·cell - r_i. Edges are sorted by receiver i. Edge (i, j, S) and edge
(j, i, -S) are the same bond. An angle is an ordered pair of different edges that share their
receiver, both shorter than the angle cutoff. The two edges of a bond between images of one atom
form an angle too, as they would in a larger cell, where they are different bonds.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.edge_counts import (
    ANGLE_BYTES,
    EDGE_BYTES,
    count_edges_at_least,
    require_room,
    require_sound,
)
from pipeline_atoms.neighbours import fill_cell, find_edges
from pipeline_atoms.structure import Structure
from pipeline_atoms.workers import Workers
from pipeline_core.artifacts.samples import SampleFile, SampleWriter
from pipeline_core.fields import FIELDS, Field, store_rows

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]

_POOL_FROM: Final = 2_000
"""Number of samples from which on worker processes pay off."""
_BLOCK: Final = 64
"""Number of samples that a worker process takes at a time."""
_MOST_CELLS: Final = 50_000.0
"""Half of the largest number of search cells of `vesin`."""
_LONGEST: Final = 150
"""Extent in cutoffs; a shorter structure has no thin direction."""
ONE_PLACE: Final = 1e-6
"""Distance below which two atoms coincide, Å: no potential is defined there."""


def build_neighbour_graph(
    positions: Floats, cell: Floats, pbc: NDArray[np.bool_], cutoff: float
) -> tuple[Ints, Ints, Floats]:
    """Find all neighbours within `cutoff`.

    Args:
        positions: (n_atoms, 3) Å.
        cell: (3, 3) rows are lattice vectors, Å.
        pbc: (3,) periodic directions.
        cutoff: Å.

    Returns:
        edge_index (n_edges, 2) as (receiver, sender), sorted by receiver, edge_shift (n_edges, 3),
        lengths (n_edges,) Å.

    Raises:
        ValueError: A coordinate is not finite, a periodic direction has no lattice vector, or there
            is not enough memory for the edges.
    """
    require_sound(positions, cell, pbc)
    n_edges = count_edges_at_least(positions, cell, pbc, cutoff)
    require_room(n_edges, len(positions), f"edges within {cutoff:g} Å", EDGE_BYTES)
    if _is_thin(positions, cell, pbc, cutoff):
        atoms = np.arange(len(positions))
        structure = Structure(np.ones(len(atoms), dtype=np.int32), positions, cell, pbc)
        index, shift = find_edges(structure, cutoff, atoms)
        vectors = positions[index[:, 1]] + shift @ cell - positions[index[:, 0]]
        return index, shift, np.linalg.norm(vectors, axis=1)
    # It imports torch, which an import of data and a label do not need.
    from vesin import NeighborList

    neighbours = NeighborList(cutoff=cutoff, full_list=True)
    i, j, shift, length = neighbours.compute(
        points=np.ascontiguousarray(positions, dtype=float),
        box=np.ascontiguousarray(cell, dtype=float),
        periodic=np.asarray(pbc, dtype=bool),
        quantities="ijSd",
    )
    # A total order, so that the graph does not depend on the order of the search.
    order = np.lexsort((shift[:, 2], shift[:, 1], shift[:, 0], j, i))
    index = np.stack([i, j], axis=1).astype(np.int64)
    return index[order], shift.astype(np.int64)[order], length[order]


def _is_thin(positions: Floats, cell: Floats, pbc: NDArray[np.bool_], cutoff: float) -> bool:
    """Return True if `vesin` would divide a structure into zero cells along its thin direction.

    This would end the process: `vesin` chooses cells by the cutoff, and reduces more than 100,000
    of them along all directions alike.
    """
    longest = max(np.ptp(positions, axis=0).max(), np.linalg.norm(cell, axis=1).max())
    if longest < _LONGEST * cutoff:
        return False
    inverse = np.linalg.inv(fill_cell(cell, pbc))
    heights = 1 / np.linalg.norm(inverse, axis=0)
    extents = np.where(pbc, heights, np.ptp(positions @ inverse, axis=0) * heights)
    counts = np.maximum(np.floor(extents / cutoff), 1.0)
    return bool(counts.prod() > _MOST_CELLS * counts.min() ** 3)


def number_bonds(reverse_edge: Ints) -> tuple[Ints, Ints]:
    """Number the bonds, each of an edge and its reverse.

    Args:
        reverse_edge: The reverse of each edge, (n_edges,), from `find_reverse_edges`; above all
            edges of this rank for a reverse that another rank has.

    Returns:
        edge_bond (n_edges,), the bond of each edge, and bond_edge (n_bonds,), the edge that
        represents a bond: the first.
    """
    edges = np.arange(len(reverse_edge))
    first = np.minimum(edges, reverse_edge)
    is_first = first == edges
    return (np.cumsum(is_first) - 1)[first], np.flatnonzero(is_first)


def find_reverse_edges(edge_index: Ints, edge_shift: Ints) -> Ints:
    """Find the edge (j, i, -S) of each edge (i, j, S).

    Args:
        edge_index: (receiver, sender), (n_edges, 2), of any number of structures.
        edge_shift: (n_edges, 3)

    Returns:
        (n_edges,)

    Raises:
        ValueError: An edge has no reverse.
    """
    if len(edge_index) == 0:
        return np.zeros(0, np.int64)
    ours, reverse = _make_edge_keys(edge_index, edge_shift)
    result = np.empty(len(ours), np.int64)
    result[np.argsort(reverse)] = np.argsort(ours)  # the same keys, if each edge has its reverse
    if not np.array_equal(ours[result], reverse):
        lonely = np.flatnonzero(np.isin(reverse, ours, invert=True))
        assert len(lonely), "an edge is given twice"
        i, j = edge_index[lonely[0]].tolist()
        raise ValueError(
            f"{len(lonely)} edges lack the reverse edge, such as that of atoms {i} and {j} with "
            f"shift {edge_shift[lonely[0]].tolist()}; give the graph both directions of each pair"
        )
    return result


def _make_edge_keys(edge_index: Ints, edge_shift: Ints) -> tuple[Ints, Ints]:
    """Return a key for each edge, and the key of its reverse, (n_edges,) each."""
    reach = 1 + np.abs(edge_shift).max(initial=0)
    n_atoms = edge_index.max(initial=0) + 1
    if int(n_atoms) ** 2 * int(2 * reach + 1) ** 3 >= 2**63:
        raise ValueError(
            f"{n_atoms} atoms lie up to {reach - 1} cells apart, so that their images cannot be "
            "numbered; wrap the positions into the cell"
        )

    def make_key(index: Ints, shift: Ints) -> Ints:
        result: Ints = index[:, 0] * n_atoms + index[:, 1]
        for axis in range(3):
            result = result * (2 * reach + 1) + shift[:, axis] + reach
        return result

    return make_key(edge_index, edge_shift), make_key(edge_index[:, ::-1], -edge_shift)


def list_angles(receivers: Ints, short: NDArray[np.bool_]) -> Ints:
    """List all ordered pairs of different short edges with one receiver.

    Args:
        receivers: (n_edges,) sorted.
        short: (n_edges,) True if an edge takes part.

    Returns:
        (n_angles, 2) edges, sorted by the first.

    Raises:
        ValueError: There is not enough memory for the angles.
    """
    chosen = np.flatnonzero(short)
    counts = np.bincount(receivers[chosen], minlength=1)
    n_atoms = int(np.count_nonzero(counts))
    require_room(float(np.square(counts, dtype=float).sum()), n_atoms, "angles", ANGLE_BYTES)
    starts = np.cumsum(counts) - counts
    partners = counts[receivers[chosen]]  # (n_chosen,)
    first = np.repeat(np.arange(len(chosen)), partners)
    within = np.arange(len(first)) - np.repeat(np.cumsum(partners) - partners, partners)
    second = starts[receivers[chosen[first]]] + within
    different = chosen[first] != chosen[second]
    return np.stack([chosen[first][different], chosen[second][different]], axis=1)


def list_graph_fields(options: GraphOptions) -> list[Field]:
    """Return the fields that a graph with these options has."""
    names = ["edge_index", "edge_shift"]
    if options.angle_cutoff is not None:
        names += ["edge_bond", "bond_edge", "angle_edges"]
    return [FIELDS[name] for name in names]


def build_graph(sample: Mapping[str, NDArray[Any]], options: GraphOptions) -> Arrays:
    """Build the graph of one structure.

    Args:
        sample: Structure with positions, cell and pbc.
        options: Cutoffs.

    Returns:
        The fields of `list_graph_fields`.

    Raises:
        ValueError: As `build_neighbour_graph` and `assemble_graph` do.
    """
    index, shift, length = build_neighbour_graph(
        sample["positions"], sample["cell"], sample["pbc"], options.cutoff
    )
    return assemble_graph(index, shift, length, options)


def assemble_graph(index: Ints, shift: Ints, length: Floats, options: GraphOptions) -> Arrays:
    """Assemble the graph from edges, with their bonds and angles.

    Args:
        index: (receiver, sender), (n_edges, 2), sorted by receiver.
        shift: (n_edges, 3)
        length: (n_edges,) Å.
        options: Cutoffs.

    Returns:
        The fields of `list_graph_fields`.

    Raises:
        ValueError: No atom has a neighbour, unless such structures are kept, two atoms coincide, or
            there is not enough memory for the angles.
    """
    if len(index) == 0 and options.isolated == "refuse":
        raise ValueError(
            f"no atom has a neighbour within {options.cutoff:g} Å; check the unit of the "
            "positions, raise graph.cutoff, leave the structure out (energies of single atoms "
            "belong under reference_energies of the dataset), or set graph.isolated to keep if "
            "such structures are meant"
        )
    if len(index) and length.min() < ONE_PLACE:
        i, j = index[length.argmin()].tolist()
        raise ValueError(
            f"atoms {i} and {j} are in one place, {length.min():.2g} Å apart; remove one of "
            "them, or correct the positions"
        )
    graph: Arrays = {"edge_index": index, "edge_shift": shift}
    if options.angle_cutoff is not None:
        graph["edge_bond"], graph["bond_edge"] = number_bonds(find_reverse_edges(index, shift))
        graph["angle_edges"] = list_angles(index[:, 0], length < options.angle_cutoff)
    return graph


def write_graphs(
    data: Path, graph: Path, options: GraphOptions, provenance: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the graph of every sample of `data`, in order.

    Returns:
        Counts for the summary.

    Raises:
        ValueError: As for `build_graph`, or a number is too large to be stored; the message names
            the structure.
    """
    fields = list_graph_fields(options)
    totals, n_isolated = dict.fromkeys(("edge", "bond", "angle"), 0), 0
    with (
        SampleFile(data, "data", ["positions", "cell", "pbc", "source"]) as samples,
        SampleWriter(graph, "graph", provenance, fields) as writer,
    ):
        writer.attributes["cutoff"] = options.cutoff
        writer.attributes["angle_cutoff"] = options.angle_cutoff or 0.0
        for result in _build_graphs(samples, options):
            writer.add(result)
            n_isolated += len(result["edge_index"]) == 0
            for field in fields:
                if field.name in ("edge_index", "bond_edge", "angle_edges"):
                    totals[field.kind] += len(result[field.name])
        n_atoms = int(samples.offsets["atom"][-1])
    return {
        "samples": writer.n_samples,
        "atoms": n_atoms,
        **({"samples_without_edges": n_isolated} if n_isolated else {}),
        **{f"{kind}s": count for kind, count in totals.items() if count},
        "edges_per_atom": round(totals["edge"] / n_atoms, 2),
    }


def _build_graphs(samples: SampleFile, options: GraphOptions) -> Iterator[Arrays]:
    """Yield the graphs of all samples in order, built in parallel processes if there are many."""
    build = partial(_build_named_graphs, options=options)
    with Workers(wanted=len(samples) >= _POOL_FROM) as workers:
        size = _BLOCK if workers.n_processes > 1 else 1
        for graphs in workers.map(build, _split_blocks(samples, size)):
            yield from graphs


def _split_blocks(stream: Iterable[Arrays], size: int) -> Iterator[list[Arrays]]:
    iterator = iter(stream)
    while block := list(islice(iterator, size)):
        yield block


def _build_named_graphs(samples: Iterable[Arrays], options: GraphOptions) -> list[Arrays]:
    return [_build_named_graph(sample, options) for sample in samples]


def _build_named_graph(sample: Arrays, options: GraphOptions) -> Arrays:
    try:
        graph = build_graph(sample, options)
        # Stored types: less data to send between processes, and to keep until it is written.
        return {name: store_rows(FIELDS[name], rows) for name, rows in graph.items()}
    except ValueError as error:
        raise ValueError(f"{sample['source']}: {error}") from None
