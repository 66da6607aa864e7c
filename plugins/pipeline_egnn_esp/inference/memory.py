"""Memory plan of a prediction, computed before it starts."""

import socket
from dataclasses import asdict, dataclass
from typing import Any, Final

from pipeline_core.distributed.ranks import Ranks
from pipeline_core.profiling.memory import find_free_bytes
from pipeline_core.system.memory import describe_bytes
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.inference.collect import SLAB_BYTES
from pipeline_egnn_esp.inference.options import PredictedStructure
from pipeline_egnn_esp.inference.slots import BlockSlots
from pipeline_egnn_esp.inference.spectra import is_complex, is_dense
from pipeline_egnn_esp.model.network import Network
from pipeline_egnn_esp.options import ESPOptions
from pipeline_kernels.equivariant.wigner import count_entries

_EDGE_INDICES: Final = 800
"""Bytes of an edge in a chunk: places, plans of sums, vectors and Gaussians."""
_BLOCK_ELEMENT: Final = 60
"""Bytes of an element of a block while two-centre tables are read in double precision."""
_KEPT: Final = 1.15
"""Memory of a chunk over that of its tensors: the allocator retains some of earlier chunks."""

_LEFT: Final = 2**25
"""Bytes that the allocator retains from all chunks while matrices are read back."""
_READ: Final = 23
"""Bytes of an element of the kept blocks in memory: of H and S, and its share of the names."""
_WRITTEN: Final = {"deeph": 35, "cp2k_csr": 58}
"""Bytes of an element more while a file is written."""
_SOLVED: Final = {"near": (90, 15), "real": (65, 38), "complex": (85, 69)}
"""Bytes of an element, and of an element of the square matrix, more while levels are found.

near: those near an energy, where the factors of the matrix fill nearly all of the square; measured
with 324 to 1500 atoms in cells 1.5 to 2.6 times as wide as orbitals reach, and less in wider ones.
real, complex: all levels, of the Gamma point alone and of others."""


@dataclass(frozen=True)
class MemoryPlan:
    """Planned memory of one rank, bytes, with its counts of atoms and edges.

    Attributes:
        atoms: Own atoms.
        halo: Ghost atoms, owned by other ranks.
        edges: Edges of own atoms.
        chunk: Edges of a chunk.
        work: Frames, operands and messages of one chunk, and memory retained from earlier chunks.
        network: Peak of the network and its messages, which are all that a GPU holds.
        peak: Peak in addition to the memory in use before.
    """

    atoms: int
    halo: int
    edges: int
    chunk: int
    work: int
    network: int
    peak: int


def count_matrix_bytes(n_entries: int, n_orbitals: int, options: PredictedStructure) -> int:
    """Return the bytes that rank 0 needs for files other than the first one and for levels.

    Args:
        n_entries: Elements of the kept blocks of the structure.
        n_orbitals: Rows of its matrix.
        options: Requested outputs.
    """
    steps = [n_entries * (_READ + _WRITTEN[output]) for output in options.outputs]
    solved = ["near"] if options.levels is not None and options.levels.energy is not None else []
    if is_dense(options):
        solved.append("complex" if is_complex(options) else "real")
    for name in solved:
        # The matrices of the data are in memory, too.
        per_entry, per_square = _SOLVED[name]
        steps.append(n_entries * (2 * _READ + per_entry) + n_orbitals**2 * per_square)
    return _LEFT + max(steps) if steps else 0


def count_edge_bytes(options: ESPOptions, basis: Basis, size: int, device: str) -> int:
    """Return the peak bytes of an edge of a chunk, for numbers of `size` bytes.

    Each step of a pass has a peak: the first features when they are summed, a node block when it
    has the values of all heads, an edge block when its feed-forward network maps the highest
    degree, and the heads when blocks are scaled. The factors count the tensors alive at this peak.
    On a device of type "cpu" the feed-forward network retains nothing.
    """
    dim, degrees, n_common = (options.lmax + 1) ** 2, options.lmax + 1, basis.n_common
    features, messages = dim * options.channels, dim * options.hidden_channels
    gates = 3 * degrees * options.hidden_channels
    values = dim * options.heads * options.value_channels
    hidden = (3 * (2 * options.lmax + 1) + 3 * options.lmax + 1) * options.feed_forward_channels
    hidden, values = (0, values) if device == "cpu" else (hidden, 2 * values)
    first = 4 * features
    if options.bond_cutoff is not None:
        first += dim * len(basis.elements) * options.bond_functions
    node = 3 * features + messages + gates + values + 3 * degrees * options.channels
    edge = 5 * features + messages + gates + hidden
    block = features + n_common**2 + _BLOCK_ELEMENT * n_common**2 // size
    return size * (count_entries(options.lmax) + max(first, node, edge, block)) + _EDGE_INDICES


def plan_memory(
    network: Network, slots: BlockSlots, work_bytes: int, n_blocks: int, matrices: int = 0
) -> MemoryPlan:
    """Return the memory that the domain of a rank takes.

    Args:
        network: The model.
        slots: Atoms and edges of this rank.
        work_bytes: Bytes for a chunk, and for the blocks that are collected for the file.
        n_blocks: Blocks of all ranks.
        matrices: Result of `count_matrix_bytes` on rank 0.
    """
    options, n, domain = network.options, network.basis.n_common, slots.domain
    weight = network.length_embedding.weight
    size = weight.element_size()
    row = (options.lmax + 1) ** 2 * options.channels * size
    per_edge = count_edge_bytes(options, network.basis, size, weight.device.type)
    chunk = min(max(1, work_bytes // per_edge), max(1, domain.n_edges))
    work, blocks = round(_KEPT * chunk * per_edge), n * n * size
    # Atoms before and after a layer, and edges between two layers.
    features = (len(domain.rows) + domain.n_own + domain.atoms.n_sent) * row
    features += domain.n_edges * row if options.layers > 1 else 0
    outputs = (slots.n_first + slots.n_sent + domain.n_own) * blocks
    of_network = outputs + max(features + work, len(slots.received_slots) * blocks)
    collected = min(work_bytes, n_blocks * SLAB_BYTES * n * n)
    return MemoryPlan(
        atoms=domain.n_own,
        halo=domain.atoms.n_halo,
        edges=domain.n_edges,
        chunk=chunk,
        work=work,
        network=of_network,
        peak=max(of_network, outputs + collected, matrices),
    )


def require_memory(name: str, plan: MemoryPlan, ranks: Ranks) -> list[dict[str, Any]]:
    """Return the plans of all ranks if each fits into the free memory, which ranks may share.

    Args:
        name: Name of the structure.
        plan: Plan of this rank.
        ranks: All ranks, which all call it.

    Returns:
        The plans of all ranks, as JSON-able dicts.

    Raises:
        ValueError: A rank needs more than its share; raised on all ranks.
    """
    free = find_free_bytes(ranks.device)
    place = socket.gethostname() if ranks.device.type == "cpu" else f"GPU {ranks.rank}"
    all_ranks = ranks.gather((place, plan, free))
    rows = []

    def of(one: MemoryPlan) -> int:
        return one.network if ranks.device.type == "cuda" else one.peak

    for number, (where, own, available) in enumerate(all_ranks):
        together = sum(of(other) for there, other, _ in all_ranks if there == where)
        if together > available:
            raise ValueError(
                f"infer.structures: {name}: rank {number} would need {describe_bytes(of(own))} in "
                f"addition to what it holds, and all ranks on {where} {describe_bytes(together)}, "
                f"but {describe_bytes(available)} are free; start ranks on more machines, lower "
                "infer.work_bytes, take fewer copies of the cell, or request fewer outputs and "
                "levels"
            )
        rows.append(asdict(own) | {"peak": of(own)})
    return rows
