"""A structure of the data, predicted by all ranks, each its domain."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline_core.config.sections import PartitionOptions
from pipeline_core.distributed.domains import build_domain
from pipeline_core.distributed.owners import choose_owners
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.distributed.transports import choose_transport
from pipeline_core.run import Run
from pipeline_core.structure import Structure
from pipeline_egnn_esp.inference.collect import Source, collect_blocks
from pipeline_egnn_esp.inference.forward import predict_blocks
from pipeline_egnn_esp.inference.options import ESPInferOptions
from pipeline_egnn_esp.inference.plan import Extra, plan_memory
from pipeline_egnn_esp.inference.slots import assign_slots
from pipeline_egnn_esp.inference.structures import compute_moves
from pipeline_egnn_esp.inference.tiling import Tiling
from pipeline_egnn_esp.matrices import BlockIndex, BlockMatrix
from pipeline_egnn_esp.scaling import ScaledNetwork
from pipeline_egnn_esp.sources.cp2k_matrices import wrap_atoms
from pipeline_egnn_esp.task import make_link

Floats = NDArray[np.float64]


def predict_entries(
    run: Run, module: ScaledNetwork, structure: Structure, ranks: Ranks
) -> BlockMatrix | None:
    """Predict the matrix of a structure; all ranks call it, each for its domain.

    Args:
        run: Says how atoms are divided, and how much is worked on at a time.
        module: With its weights, on the device of the ranks.
        structure: All atoms.
        ranks: All of them.

    Returns:
        The blocks up to the cutoff as the Hamiltonian, whatever was learned, on rank 0; None on
        others.
    """
    network, inside = module.network, wrap_atoms(structure)
    cutoff, section = network.options.cutoff, run.section("partition", PartitionOptions)
    link = make_link(section.link, network.options, network.length_embedding.weight.element_size())
    owners = choose_owners(inside, cutoff, ranks, section.method, link)
    slots = assign_slots(build_domain(inside, cutoff, owners, choose_transport(ranks)))
    work_bytes = run.section("infer", ESPInferOptions).work_bytes
    chunk = plan_memory(network, slots, work_bytes, Extra()).chunk
    source = Source(slots, predict_blocks(module, slots, chunk), network.basis, None)
    blocks = collect_blocks(source.blocks(0, len(inside.positions)), ranks)
    if not ranks.is_rank_zero:
        return None
    names, entries = blocks.names, blocks.entries[0]
    nothing = np.zeros_like(entries)
    matrix = BlockMatrix(inside, network.basis, names[:, 3:], names[:, :3], entries, nothing)
    return Tiling(matrix, (1, 1, 1), structure, -compute_moves(structure, inside)).whole()


def align_entries(predicted: BlockMatrix, wanted: BlockMatrix) -> Floats:
    """Return the blocks that another matrix has, zero where there are none, (n_entries,)."""
    basis, numbers = wanted.basis, wanted.structure.atomic_numbers
    place = BlockIndex(predicted.block_atoms, predicted.block_shift).find(
        wanted.block_atoms, wanted.block_shift
    )
    padded = basis.pad(predicted.hamiltonian, *numbers[predicted.block_atoms].T)
    blocks = np.zeros((len(place), *padded.shape[1:]))
    blocks[place >= 0] = padded[place[place >= 0]]
    return basis.unpad(blocks, *numbers[wanted.block_atoms].T)
