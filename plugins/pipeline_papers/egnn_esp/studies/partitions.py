"""Domain decomposition of one large structure by several methods, figure 5 of the paper."""

import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.structure import Structure
from pipeline_core.config.sections import PartitionMethod
from pipeline_kernels.partition import (
    PlaneCoordinates,
    Rows,
    label_atoms,
    make_adjacency,
    partition,
)
from pipeline_kernels.partition.synthetic import find_edges
from pipeline_papers.egnn_esp.studies.options import Partitions
from pipeline_papers.egnn_esp.studies.volumes import (
    Volumes,
    count_volumes_of_rows,
    find_edges_within,
    pack_box,
)

Ints = NDArray[np.int64]

_WARM: Final = 64
"""Atoms of a graph on which compiled loops are called once for warm-up."""


@dataclass(frozen=True)
class Shared:
    """A partition of a structure.

    Attributes:
        record: cutoff (Å), parts, method, seconds (processor time from the graph to the labels),
            and the numbers of figure 5, see `PartitionMetrics.summarize`.
        volumes: Volumes of each part.
    """

    record: dict[str, Any]
    volumes: Volumes


def study_partitions(
    options: Partitions, elements: tuple[int, ...], message: float, seed: int
) -> tuple[dict[str, Any], dict[str, Any] | None, list[Shared]]:
    """Partition the structure by all methods; processor times are for one thread.

    Args:
        options: Structure, methods, and numbers of parts.
        elements: Atomic numbers.
        message: Rows of an atom that could be sent in the latency of one message, by which `grid`
            and `auto` choose.
        seed: Seed of the structure.

    Returns:
        atoms, edges by cutoff, and records of all partitions, JSON-able; of the drawn ones cutoff,
        parts, positions, cell, and by method labels (the part of each atom) and traffic (the atoms
        that a part, the row, receives from another), JSON-able, None for none; all partitions.

    Raises:
        ValueError: The structure cannot be packed or is too small for a cutoff or for the parts.
    """
    structure = pack_box(options.packing, elements, seed)
    n_atoms = len(structure.positions)
    if max(options.parts) > n_atoms:
        raise ValueError(
            f"profile.partitions: {n_atoms} atoms cannot be shared between {max(options.parts)} "
            "parts; use fewer parts, or more copies of the box"
        )
    _warm_up()
    shared: list[Shared] = []
    n_edges: dict[str, int] = {}
    drawn: dict[str, Any] = {
        "cutoff": options.cutoffs[0],
        "parts": options.drawn,
        "positions": structure.positions.astype("f4").tolist(),
        "cell": structure.cell.tolist(),
        "labels": {},
        "traffic": {},
    }
    for cutoff in options.cutoffs:
        edges = find_edges_within(structure, cutoff)
        n_edges[f"{cutoff:g}"] = len(edges)
        graph = _Graph(structure, edges, cutoff, message)
        del edges
        for parts in options.parts:
            shared += [graph.share(method, parts, drawn) for method in options.methods]
    content = {"atoms": n_atoms, "edges": n_edges, "records": [one.record for one in shared]}
    return content, None if options.drawn is None else drawn, shared


class _Graph:
    """A graph in the forms that the methods read."""

    def __init__(self, structure: Structure, edges: Ints, cutoff: float, message: float) -> None:
        places = structure.positions, structure.cell, structure.pbc
        self._atoms = PlaneCoordinates.of(*places, cutoff)
        self._rows = Rows.of(edges, len(structure.positions))
        self._adjacency = make_adjacency(self._rows)
        self._cutoff, self._message = cutoff, message

    def share(self, method: PartitionMethod, parts: int, drawn: dict[str, Any]) -> Shared:
        begin = time.process_time()
        labels = label_atoms(self._atoms, self._rows, parts, method, self._message, self._adjacency)
        seconds = time.process_time() - begin
        metrics = self._rows.measure(labels, parts)
        if (parts, self._cutoff) == (drawn["parts"], drawn["cutoff"]):
            drawn["labels"][method] = labels.tolist()
            drawn["traffic"][method] = metrics.traffic.tolist()
        facts = {"cutoff": self._cutoff, "parts": parts, "method": method, "seconds": seconds}
        volumes = count_volumes_of_rows(labels, self._rows, metrics)
        return Shared(facts | metrics.summarize(), volumes)


def _warm_up() -> None:
    """Compile the loops by a first call."""
    positions = np.random.default_rng(0).uniform(0, 20, (_WARM, 3))
    edges = find_edges(positions, 20 * np.eye(3), 8.0)
    partition(positions, 20 * np.eye(3), (True, True, True), edges, 2, 8.0)
