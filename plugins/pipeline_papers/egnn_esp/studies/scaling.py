"""Forward passes on few ranks, measured, and on many, projected: figures 6 and 7 of the paper.

A projection takes exact counts of the atoms, edges and messages of each part, and

    t_p = c + c_a atoms_p + c_e edges_p + (M + 1) α neighbours_p + bytes_p / β,

where M is the number of layers, bytes_p the size of the atoms that part p receives in M exchanges
and of the blocks of half of its crossing edges, since one of two opposite edges sends its block to
the other. The pass ends with the slowest part. Coefficients are fitted to passes of one rank, α and
β to exchanges between two; no overlap is assumed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import sched_getaffinity
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_atoms.graphs import build_neighbour_graph
from pipeline_atoms.structure import Structure
from pipeline_core.config.sections import Link
from pipeline_core.profiling.network import fit_link
from pipeline_core.profiling.report import describe_fit
from pipeline_core.training.balance.cost_model import CostModel, fit
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.options import ESPOptions
from pipeline_kernels.partition import PlaneCoordinates, Rows, cut_by_low_nn
from pipeline_papers.egnn_esp.studies.options import Scaling, Tiles, Weak
from pipeline_papers.egnn_esp.studies.partitions import Shared
from pipeline_papers.egnn_esp.studies.ranks import (
    LINK_ROWS,
    Job,
    Passes,
    measure_passes,
)
from pipeline_papers.egnn_esp.studies.volumes import (
    Volumes,
    count_volumes_of_parts,
    count_volumes_of_rows,
    find_edges_within,
    pack_box,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SHORTER: Final = 0.7
"""Cutoff of a further pass over the others' cutoff, to separate costs of atoms and edges."""
_SIZE: Final = 4
"""Bytes of a number."""


@dataclass(frozen=True)
class Machine:
    """Machine model of a projection.

    Attributes:
        cost: Cost model of the computation of a rank, s.
        link: α and β.
        layers: M.
        row_bytes: Bytes of an atom in an exchange.
        block_bytes: Bytes of a block.
    """

    cost: CostModel
    link: Link
    layers: int
    row_bytes: int
    block_bytes: int

    def count_bytes_received(self, volumes: Volumes) -> Floats:
        """Return the bytes that each part receives in a pass, (n_parts,)."""
        atoms = self.layers * self.row_bytes * volumes.received
        return np.asarray(atoms + self.block_bytes * volumes.crossing / 2, dtype=np.float64)

    def record(self, volumes: Volumes, slowdown: float = 1.0) -> dict[str, float]:
        """Return the time of a pass, set by the slowest part, and its division in the mean part.

        Args:
            volumes: Volumes of all parts.
            slowdown: Factor on the computation, where ranks share a core.
        """
        sizes = {"atom": volumes.atoms, "edge": volumes.edges}
        compute = slowdown * self.cost.predict(sizes)
        latency = (self.layers + 1) * self.link.latency * volumes.neighbours
        transfer = self.count_bytes_received(volumes) / self.link.bandwidth
        whole = compute + latency + transfer
        return {
            "seconds": float(whole.max()),
            "fastest": float(whole.min()),
            "compute": float(compute.mean()),
            "latency": float(latency.mean()),
            "transfer": float(transfer.mean()),
            "idle": float(whole.max() - whole.mean()),
        }


def study_scaling(
    options: Scaling,
    model: ESPOptions,
    basis: Basis,
    shared: Sequence[Shared],
    device: torch.device,
    seed: int,
) -> dict[str, Any]:
    """Measure passes and their parts, and project others.

    Args:
        options: Measured and projected cases.
        model: Sizes of the network.
        basis: Shells of the elements.
        shared: Partitions of one structure, for strong scaling.
        device: Device of the ranks.
        seed: Seed of the structures.

    Returns:
        device, processors (cores or GPUs that ranks share), layers, channels, row_bytes,
        block_bytes; cost_model, coefficients and the median relative_error; link, with latency,
        bandwidth, source, bytes and seconds; measured and projected, lists of records. JSON-able.

    Raises:
        ValueError: A process failed, or a structure cannot be made.
    """
    box = pack_box(options.packing, basis.elements, seed)
    cases = _make_cases(options, box)
    passes = {}
    for n in sorted({1, 2, *options.ranks}):
        jobs = [case.job for case in cases if case.n_ranks == n]
        passes[n] = measure_passes(model, basis, options, jobs, device, n)
    cost, error = _fit_cost(cases, passes[1])
    n_rows = (model.lmax + 1) ** 2 * model.channels * _SIZE
    n_bytes = [n * n_rows for n in LINK_ROWS]
    link = fit_link(n_bytes, passes[2].link)
    source = "measured between 2 processes of this machine"
    block_bytes = basis.n_common**2 * _SIZE
    machine = Machine(cost, link, model.layers, n_rows, block_bytes)
    on_gpu = device.type == "cuda"
    processors = torch.cuda.device_count() if on_gpu else len(sched_getaffinity(0))
    return {
        "device": device.type,
        "processors": processors,
        "layers": model.layers,
        "channels": model.channels,
        "row_bytes": machine.row_bytes,
        "block_bytes": machine.block_bytes,
        "cutoff": options.cutoff,
        "cost_model": {**cost.coefficients, "relative_error": error},
        "link": {
            **link.model_dump(),
            "source": source,
            "bytes": n_bytes,
            "seconds": passes[2].link,
        },
        "measured": _record_measured(cases, passes, machine, processors),
        "projected": _record_strong(shared, machine)
        + (_record_weak(options.weak, machine, basis, seed) if options.weak else []),
    }


@dataclass(frozen=True)
class Case:
    """Forward pass of a structure on some ranks.

    Attributes:
        modes: Kinds of scaling to which it belongs.
        n_ranks: Number of ranks.
        job: Work of the ranks.
        volumes: Volumes of their parts.
    """

    modes: tuple[str, ...]
    n_ranks: int
    job: Job
    volumes: Volumes


def _make_cases(options: Scaling, box: Structure) -> list[Case]:
    """Return all passes; each number of boxes and ranks once."""
    most = max(options.ranks)
    modes_of: dict[tuple[int, int], tuple[str, ...]] = {}
    for n in options.ranks:
        modes_of[n, n] = ("weak",)
        modes_of[most, n] = (*modes_of.get((most, n), ()), "strong")
    for boxes in {1, most}:
        modes_of.setdefault((boxes, 1), ())
    cases = [_make_case(modes, *sizes, box, options.cutoff) for sizes, modes in modes_of.items()]
    return [*cases, _make_case((), most, 1, box, _SHORTER * options.cutoff)]


def _make_case(modes: tuple[str, ...], boxes: int, n: int, box: Structure, cutoff: float) -> Case:
    structure = box.repeat((boxes, 1, 1))
    places = structure.positions, structure.cell, structure.pbc
    index, _, _ = build_neighbour_graph(*places, cutoff)
    rows = Rows.of(index, len(structure.positions))
    labels = cut_by_low_nn(PlaneCoordinates.of(*places, cutoff), rows.weights, n)
    volumes = count_volumes_of_rows(labels, rows, rows.measure(labels, n))
    return Case(modes, n, Job(structure, labels, cutoff), volumes)


def _fit_cost(cases: Sequence[Case], passes: Passes) -> tuple[CostModel, float]:
    alone = [case.volumes for case in cases if case.n_ranks == 1]
    totals = {
        "atom": np.array([float(one.atoms.sum()) for one in alone]),
        "edge": np.array([float(one.edges.sum()) for one in alone]),
    }
    seconds = passes.seconds[:, 0]
    cost = fit(totals, seconds)
    return cost, describe_fit(cost, totals, seconds)["relative_error"]


def _record_measured(
    cases: Sequence[Case], passes_of: Mapping[int, Passes], machine: Machine, processors: int
) -> list[dict[str, Any]]:
    """Return records of measured passes beside the predictions of the model."""
    places = dict.fromkeys(passes_of, 0)
    records = []
    for case in cases:
        passes, row = passes_of[case.n_ranks], places[case.n_ranks]
        places[case.n_ranks] += 1
        slowdown = max(1.0, case.n_ranks / processors)
        facts = {
            "ranks": case.n_ranks,
            "atoms": int(case.volumes.atoms.sum()),
            "edges": int(case.volumes.edges.sum()),
            "seconds": float(passes.seconds[row].max()),
            "of_ranks": passes.seconds[row].tolist(),
            "communication": passes.communication[row].tolist(),
            "modelled": machine.record(case.volumes, slowdown)["seconds"],
        }
        records += [{"mode": mode, **facts} for mode in case.modes]
    return records


def _record_strong(shared: Sequence[Shared], machine: Machine) -> list[dict[str, Any]]:
    records = []
    for one in shared:
        method, cutoff, ranks = (one.record[key] for key in ("method", "cutoff", "parts"))
        facts = {"mode": "strong", "method": method, "cutoff": cutoff, "ranks": ranks}
        records.append(facts | _compute_sizes(one.volumes, machine) | machine.record(one.volumes))
    return records


def _record_weak(options: Weak, machine: Machine, basis: Basis, seed: int) -> list[dict[str, Any]]:
    """Return records of copies of a box, partitioned by `low_nn` as in the paper."""
    box = pack_box(options.packing, basis.elements, seed)
    edges = find_edges_within(box, options.cutoff)
    degrees = np.bincount(edges[:, 0], minlength=len(box.positions)).astype(np.float64)
    volumes_of: dict[Tiles, Volumes] = {}
    records = []
    for mode, series in (("line", options.line), ("cube", options.cube)):
        for tiles in series:
            n = options.ranks * int(np.prod(tiles))
            if tiles not in volumes_of:
                volumes_of[tiles] = _compute_copies(box, degrees, tiles, n, options.cutoff)
            volumes = volumes_of[tiles]
            facts = {"mode": mode, "method": "low_nn", "cutoff": options.cutoff, "ranks": n}
            records.append(facts | _compute_sizes(volumes, machine) | machine.record(volumes))
    return records


def _compute_copies(
    box: Structure, degrees: Floats, tiles: Tiles, n: int, cutoff: float
) -> Volumes:
    structure = box.repeat(tiles)
    atoms = PlaneCoordinates.of(structure.positions, structure.cell, structure.pbc, cutoff)
    labels = cut_by_low_nn(atoms, np.tile(degrees, int(np.prod(tiles))), n)
    return count_volumes_of_parts(structure, labels, cutoff)


def _compute_sizes(volumes: Volumes, machine: Machine) -> dict[str, float]:
    """Return sizes of the whole and means over its parts."""
    return {
        "atoms": int(volumes.atoms.sum()),
        "edges": int(volumes.edges.sum()),
        "neighbours": float(volumes.neighbours.mean()),
        "received": float(volumes.received.mean()),
        "bytes_received": float(machine.count_bytes_received(volumes).mean()),
    }
