"""Projected cost of an MD step of a large structure with domain decomposition over many ranks.

Parts of a crystal from the data are measured on this machine, with their halo and without the other
ranks, see `parts`. All else is projected: parts are cubes of equal numbers of atoms, with a halo
extrapolated from one cube, and the time of messages follows from the network.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np
import torch
from scipy.optimize import brentq

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.domains.construction import build_domain
from pipeline_atoms.neighbours import find_edges
from pipeline_atoms.potential.potential import Potential
from pipeline_atoms.structure import INPUTS, Structure
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.batch import move_to_device
from pipeline_core.config.sections import Link
from pipeline_core.distributed.ranks import connect_ranks
from pipeline_core.profiling.memory import find_used_bytes
from pipeline_core.profiling.network import choose_network, read_link
from pipeline_core.profiling.parts import MeasuredPart, SilentTransport, measure_part
from pipeline_core.profiling.steps import fit_last
from pipeline_core.project.run import Run
from pipeline_core.task import build_task
from pipeline_core.training.balance.cost_model import fit

_SIZES: Final = (250, 1000, 4000)
"""Approximate numbers of atoms of the measured parts."""
_SECONDS: Final = 20.0
"""Time of a part after which no larger one is measured, s."""
_CUBE: Final = 1000
"""Number of atoms in the cube for which neighbours are counted."""
_MARGIN: Final = 3.0
"""Volume of the crystal over the volume of the cube extended by the cutoff."""
_NEIGHBOURS: Final = 26
"""Number of parts around a cube."""
_MOVED_BYTES: Final = 48
"""Bytes per atom and step: rank 0 sends the position to all ranks, and receives the force."""


def plan_structure(run: Run, n_atoms: int, ranks: Sequence[int]) -> dict[str, Any]:
    """Project an MD step of a structure for numbers of ranks, each like this machine.

    Args:
        run: Run with the model, trained or not, and training data with a periodic structure;
            nothing is written.
        n_atoms: Number of atoms of the structure.
        ranks: Numbers of ranks, ascending.

    Returns:
        experiment, variant, device, threads, precision, atoms, parts (see `MeasuredPart`), network
        and ranks: for each number ranks, own and halo (atoms of a rank), step_s, compute_s,
        messages_s, moving_s (positions and forces through rank 0), speedup, efficiency and memory
        (bytes of a rank). JSON-able.

    Raises:
        ValueError: The model exchanges no features, or no structure of the data is periodic in
            three directions.
    """
    with connect_ranks(run.device, run.state) as world:
        device = world.device
    module = build_task(run).module
    if not (isinstance(module, Potential) and module.takes_domains):
        raise ValueError(
            f"{run.experiment}: ranks of plugin {run.model_info.name!r} exchange no features "
            "(Potential.takes_domains), so that no structure can be planned for them"
        )
    module = module.to(device).eval().requires_grad_(False)
    cell, graph = _read_crystal(run), run.get_section("graph", GraphOptions)
    parts: list[MeasuredPart] = []
    for size in _SIZES:
        if not parts or parts[-1].seconds < _SECONDS:
            parts.append(_measure_part(module, tile_crystal(cell, 2 * size), graph, device))
    record = choose_network(run)
    reach = measure_reach(cell, graph.cutoff)
    projector = _Projector(parts, measure_density(cell), reach, read_link(record))
    rows = [projector.project(n_atoms, n) for n in ranks]
    for row in rows:
        row["speedup"] = rows[0]["step_s"] * ranks[0] / row["step_s"]
        row["efficiency"] = row["speedup"] / row["ranks"]
    return {
        "experiment": run.experiment,
        "variant": run.variant,
        "device": device.type,
        "threads": torch.get_num_threads(),
        "precision": str(next(module.parameters()).dtype).removeprefix("torch."),
        "atoms": n_atoms,
        "memory_before": find_used_bytes(device),
        "parts": [asdict(part) for part in parts],
        "network": record,
        "ranks": rows,
    }


class _Projector:
    """Projection of parts of any size, from measured parts.

    Args:
        parts: Measured parts, by size.
        density: Atoms per Å³.
        reach: Width of the halo from `measure_reach`, Å.
        link: Link between ranks.
    """

    def __init__(
        self, parts: Sequence[MeasuredPart], density: float, reach: float, link: Link
    ) -> None:
        own = np.array([part.own for part in parts])
        self._time = fit({"atom": own}, np.array([part.seconds for part in parts]))
        self._memory = fit_last([(part.own, part.memory) for part in parts])
        self._parts, self._density, self._reach = parts, density, reach
        self._link = link

    def project(self, n_atoms: int, n_ranks: int) -> dict[str, Any]:
        """Project a step of a structure on a number of ranks."""
        own = -(-n_atoms // n_ranks)
        halo = 0 if n_ranks == 1 else count_halo(own, self._density, self._reach)
        halo = min(halo, n_atoms - own)
        compute = float(self._time.predict({"atom": np.array(own)}))
        messages = moving = 0.0
        if n_ranks > 1:
            peers = min(_NEIGHBOURS, n_ranks - 1)
            messages = self._parts[-1].predict_messages(self._link, halo, peers)
            moving = self._link.time(_MOVED_BYTES * n_atoms, n_messages=0)
        return {
            "ranks": n_ranks,
            "own": own,
            "halo": halo,
            "step_s": compute + messages + moving,
            "compute_s": compute,
            "messages_s": messages,
            "moving_s": moving,
            "memory": self._memory and round(float(self._memory.predict({"sample": own}))),
        }


def count_halo(own: int, density: float, reach: float) -> int:
    """Return the number of ghost atoms around a cube.

    The volume around a cube of side s within a distance r is 6 s² r + 3π s r² + 4π r³ / 3
    (J. Steiner's formula for convex bodies).

    Args:
        own: Number of atoms in the cube.
        density: Atoms per Å³.
        reach: Width of the halo r, Å; see `measure_reach`.
    """
    side = (own / density) ** (1 / 3)
    around = 6 * side**2 * reach + 3 * np.pi * side * reach**2 + 4 / 3 * np.pi * reach**3
    return round(float(density * around))


def measure_reach(cell: Structure, cutoff: float) -> float:
    """Measure the effective width of the halo around a cube, Å.

    It is smaller than the cutoff, since few atoms lie at the surface of the cube.

    Args:
        cell: A crystal.
        cutoff: Longest edge, Å.
    """
    density = measure_density(cell)
    side = (_CUBE / density) ** (1 / 3)
    crystal = tile_crystal(cell, round(density * (side + 2 * cutoff) ** 3 * _MARGIN))
    middle = crystal.cell.sum(axis=0) / 2
    own = np.flatnonzero((np.abs(crystal.positions - middle) < side / 2).all(axis=1))
    senders = find_edges(crystal, cutoff, own)[0][:, 1]
    halo = len(np.setdiff1d(senders, own))
    return float(
        brentq(lambda reach: count_halo(len(own), density, reach) - halo, 0, 2 * cutoff, xtol=0.01)
    )


def _measure_part(
    module: Potential, structure: Structure, graph: GraphOptions, device: torch.device
) -> MeasuredPart:
    """Measure the part of a crystal on one side of a plane through its middle."""
    along = (structure.positions @ np.linalg.inv(structure.cell))[:, 0] % 1.0
    owners = (np.argsort(np.argsort(along, kind="stable")) >= len(along) // 2).astype(np.int64)
    transport = SilentTransport(0, 2)
    domain = build_domain(structure, graph.cutoff, owners, transport, graph.angle_cutoff)
    dtype = next(module.parameters()).dtype
    batch = move_to_device(domain.make_batch(structure.positions[domain.rows], dtype), device)
    placed = domain.to(device)

    def calculate() -> None:
        with torch.no_grad():
            module(batch, placed)

    return measure_part(calculate, transport, (domain.n_own, domain.atoms.n_halo), device)


def _read_crystal(run: Run) -> Structure:
    """Read a periodic structure of the training data, the largest of the first hundred."""
    with SampleFile(run.data, "data", INPUTS) as data:
        samples = [data.read(number) for number in range(min(100, len(data)))]
    periodic = [sample for sample in samples if sample["pbc"].all()]
    if not periodic:
        raise ValueError(
            f"{run.experiment}: no structure of {run.data} is periodic in three directions, so "
            "that none can be repeated to a larger one"
        )
    return Structure.of_fields(max(periodic, key=lambda sample: len(sample["positions"])))


def tile_crystal(structure: Structure, n_atoms: int) -> Structure:
    """Repeat a cell to a crystal of at least `n_atoms` atoms, about as long as wide."""
    lengths = np.linalg.norm(structure.cell, axis=1)
    copies = np.ones(3, dtype=int)
    while copies.prod() * len(structure.positions) < n_atoms:
        copies[np.argmin(copies * lengths)] += 1
    return structure.repeat(copies.tolist())


def measure_density(structure: Structure) -> float:
    """Return the number of atoms per Å³."""
    return len(structure.positions) / float(abs(np.linalg.det(structure.cell)))
