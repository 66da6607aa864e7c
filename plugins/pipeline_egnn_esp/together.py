"""One structure of the data, predicted by all ranks, each its part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline_core.distributed.ranks import Ranks
from pipeline_core.run import Run
from pipeline_egnn_esp.distributed import link_of
from pipeline_egnn_esp.inference.collect import Source, collected
from pipeline_egnn_esp.inference.forward import predicted
from pipeline_egnn_esp.inference.options import ESPInferOptions
from pipeline_egnn_esp.inference.parts import part_of, shared
from pipeline_egnn_esp.inference.plan import Extra, memory_plan
from pipeline_egnn_esp.inference.structures import moves
from pipeline_egnn_esp.inference.tiling import Tiling
from pipeline_egnn_esp.inference.transport import transport_of
from pipeline_egnn_esp.matrices import BlockIndex, BlockMatrix
from pipeline_egnn_esp.options import ESPOptions
from pipeline_egnn_esp.partition_options import ESPPartitionOptions
from pipeline_egnn_esp.scaling import ScaledNetwork
from pipeline_egnn_esp.sources.cp2k_matrices import wrapped

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Together:
    """Ranks that predict a structure together.

    Attributes:
        run: Says how atoms are shared, and how much is worked on at a time.
        module: With its weights, on the device of the ranks.
        ranks: All of them.
    """

    run: Run
    module: ScaledNetwork
    ranks: Ranks

    def entries(self, matrix: BlockMatrix) -> Floats | None:
        """Predict the blocks of a matrix; all ranks call it.

        Args:
            matrix: Says which structure and which blocks.

        Returns:
            As the matrix has them, zero for those farther than the cutoff, (n_entries,); None on
            all ranks but the first.
        """
        before, network, ranks = matrix.structure, self.module.network, self.ranks
        structure = wrapped(before)
        section = self.run.section("partition", ESPPartitionOptions)
        options = self.run.section("model", ESPOptions)
        link = link_of(section.link, options, network.lengths.weight.element_size())
        labels = shared(structure, options.cutoff, section.method, ranks, link)
        part = part_of(structure, options.cutoff, labels, ranks.rank, ranks.size)
        work_bytes = self.run.section("infer", ESPInferOptions).work_bytes
        chunk = memory_plan(network, part, work_bytes, Extra()).chunk
        blocks = predicted(self.module, part, structure, transport_of(ranks), chunk)
        source = Source(part, blocks, structure, network.basis, None)
        found = collected(source.blocks(0, len(structure.positions)), ranks)
        if not ranks.is_rank_zero:
            return None
        names, entries = found.names, found.entries[0]
        nothing = np.zeros_like(entries)
        whole = BlockMatrix(structure, network.basis, names[:, 3:], names[:, :3], entries, nothing)
        back = Tiling(whole, (1, 1, 1), before, -moves(before, structure)).whole()
        return _aligned(back, matrix)


def _aligned(found: BlockMatrix, wanted: BlockMatrix) -> Floats:
    """Return the blocks that another matrix has, zero where there are none, (n_entries,)."""
    basis, numbers = wanted.basis, wanted.structure.atomic_numbers
    place = BlockIndex(found.block_atoms, found.block_shift).find(
        wanted.block_atoms, wanted.block_shift
    )
    padded = basis.padded(found.hamiltonian, *numbers[found.block_atoms].T)
    blocks = np.zeros((len(place), *padded.shape[1:]))
    blocks[place >= 0] = padded[place[place >= 0]]
    return basis.unpadded(blocks, *numbers[wanted.block_atoms].T)
