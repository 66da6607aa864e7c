"""Domain decomposition of one large structure by several methods, figure 5 of the paper."""

from __future__ import annotations

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
        method: Partition method.
        cutoff: Cutoff of the graph, Å.
        parts: Number of parts.
        seconds: Processor time from the graph to the labels.
        volumes: Volumes of each part.
        summary: The numbers of figure 5, see `PartitionMetrics.summarize`.
    """

    method: PartitionMethod
    cutoff: float
    parts: int
    seconds: float
    volumes: Volumes
    summary: dict[str, float]

    def record(self) -> dict[str, Any]:
        """Return the drawn partitions, JSON-able."""
        facts = {"cutoff": self.cutoff, "parts": self.parts, "method": self.method}
        return {**facts, "seconds": self.seconds, **self.summary}


@dataclass(frozen=True)
class Drawn:
    """Domains and messages of the drawn partitions.

    Attributes:
        structure: All atoms.
        cutoff: Å
        parts: Number of parts.
        labels: Parts of atoms, by method, (n_atoms,).
        traffic: Atoms that a part, the row, receives from another, by method, (n_parts, n_parts).
    """

    structure: Structure
    cutoff: float
    parts: int
    labels: dict[PartitionMethod, Ints]
    traffic: dict[PartitionMethod, Ints]


@dataclass(frozen=True)
class Divisions:
    """Results of the study.

    Attributes:
        n_atoms: Number of atoms of the structure.
        n_edges: Number of edges of its graph, by cutoff.
        shared: All partitions.
        drawn: Drawn partitions; None for none.
    """

    n_atoms: int
    n_edges: dict[float, int]
    shared: list[Shared]
    drawn: Drawn | None


def study_partitions(
    options: Partitions, elements: tuple[int, ...], message: float, seed: int
) -> Divisions:
    """Partition the structure by all methods; processor times are for one thread.

    Args:
        options: Structure, methods, and numbers of parts.
        elements: Atomic numbers.
        message: Rows of an atom that could be sent in the latency of one message, by which `grid`
            and `auto` choose.
        seed: Seed of the structure.

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
    n_edges: dict[float, int] = {}
    drawn = None
    if options.drawn is not None:
        drawn = Drawn(structure, options.cutoffs[0], options.drawn, {}, {})
    for cutoff in options.cutoffs:
        edges = find_edges_within(structure, cutoff)
        n_edges[cutoff] = len(edges)
        graph = _Graph(structure, edges, cutoff, message)
        del edges
        for parts in options.parts:
            shared += [graph.make_shared(method, parts, drawn) for method in options.methods]
    return Divisions(n_atoms, n_edges, shared, drawn)


class _Graph:
    """A graph in the forms that the methods read."""

    def __init__(self, structure: Structure, edges: Ints, cutoff: float, message: float) -> None:
        places = structure.positions, structure.cell, structure.pbc
        self._atoms = PlaneCoordinates.of(*places, cutoff)
        self._rows = Rows.of(edges, len(structure.positions))
        self._adjacency = make_adjacency(self._rows)
        self._cutoff, self._message = cutoff, message

    def make_shared(self, method: PartitionMethod, parts: int, drawn: Drawn | None) -> Shared:
        begin = time.process_time()
        labels = label_atoms(self._atoms, self._rows, parts, method, self._message, self._adjacency)
        seconds = time.process_time() - begin
        metrics = self._rows.measure(labels, parts)
        if drawn is not None and (parts, self._cutoff) == (drawn.parts, drawn.cutoff):
            drawn.labels[method], drawn.traffic[method] = labels, metrics.traffic
        volumes = count_volumes_of_rows(labels, self._rows, metrics)
        return Shared(method, self._cutoff, parts, seconds, volumes, metrics.summarize())


def _warm_up() -> None:
    """Compile the loops by a first call."""
    positions = np.random.default_rng(0).uniform(0, 20, (_WARM, 3))
    edges = find_edges(positions, 20 * np.eye(3), 8.0)
    partition(positions, 20 * np.eye(3), (True, True, True), edges, 2, 8.0)
