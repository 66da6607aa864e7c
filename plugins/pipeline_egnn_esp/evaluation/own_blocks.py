"""Prediction of divided structures of the data: each rank keeps the blocks of its own atoms.

A block belongs to the rank that owns the atom of its rows. No rank holds more than the blocks with
one of its atoms at either end, for structures of any size; rank 0 collects and writes all blocks,
a few at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_atoms.domains import DividedSplits
from pipeline_core.batch import collate
from pipeline_core.distributed.ranks import Ranks
from pipeline_egnn_esp.data.baselines import TwoCentre
from pipeline_egnn_esp.data.matrices import count_within
from pipeline_egnn_esp.data.samples import Labelled, MatrixSamples
from pipeline_egnn_esp.evaluation.comparison import PredictedMatrix, join_blocks
from pipeline_egnn_esp.inference.forward import predict_blocks
from pipeline_egnn_esp.inference.memory import plan_memory
from pipeline_egnn_esp.inference.slots import BlockSlots, assign_slots
from pipeline_egnn_esp.model.scaling import ScaledNetwork

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCKS: Final = 2**14
"""Blocks that rank 0 collects at a time."""


@dataclass(frozen=True)
class OwnBlocks:
    """The blocks of one rank.

    Attributes:
        blocks: Blocks with labels and predictions.
        places: Place of each among all blocks of the structure, (n_blocks,).
        n_total: Number of blocks of all ranks.
    """

    blocks: PredictedMatrix
    places: Ints
    n_total: int


class OwnPredictor:
    """Predictor of the blocks that one rank owns of a split's samples; all ranks call it together.

    Args:
        module: Network with its weights, on the device of the ranks.
        baseline: Two-centre baseline, on the CPU.
        divided: Divided structures of the ranks.
        ranks: All ranks.
        work_bytes: Memory for the edges of one chunk.
    """

    def __init__(
        self,
        module: ScaledNetwork,
        baseline: TwoCentre,
        divided: DividedSplits,
        ranks: Ranks,
        work_bytes: int,
    ) -> None:
        self._module, self._baseline, self._divided = module, baseline, divided
        self._ranks, self._work_bytes = ranks, work_bytes

    def predict(self, samples: MatrixSamples, index: int) -> OwnBlocks:
        """Return the blocks that this rank owns of a sample.

        Args:
            samples: The split.
            index: Number of the sample in it.

        Raises:
            ValueError: A prediction is not finite.
        """
        slots = assign_slots(self._divided.build_domain(samples.read_structure(index)))
        domain = slots.domain
        chunk = plan_memory(self._module.network, slots, self._work_bytes, 0).chunk
        predicted = predict_blocks(self._module, slots, chunk)
        index_of_edges, shifts = _list_first_edges(slots)
        own = domain.rows[: domain.n_own]
        labelled, stored = samples.read_own(index, own, domain.rows[index_of_edges], shifts)
        pair = (predicted.nodes, predicted.edges)
        both = {
            "model": labelled.gather_entries(*(blocks.cpu().double().numpy() for blocks in pair)),
            "two_centre": labelled.gather_entries(*self._compute_baseline(slots)),
        }
        if not np.isfinite(both["model"]).all():
            raise ValueError(
                f"the model predicts elements that are not finite for sample {index} of the split; "
                "check the sample, or train with a lower learning rate"
            )
        places, n_total = self._number_blocks(labelled, stored, samples.count_stored(index))
        blocks = PredictedMatrix(labelled.matrix, labelled.energy_zero, both)
        return OwnBlocks(blocks, places, n_total)

    def _compute_baseline(self, slots: BlockSlots) -> tuple[Floats, Floats]:
        """Return the two-centre blocks of own atoms and of the first edges."""
        inputs, (edge_index, edge_shift) = slots.domain.make_inputs(), _list_first_edges(slots)
        first = {"edge_index": edge_index, "edge_shift": edge_shift}
        batch = collate([inputs | first], torch.float64)
        nodes = self._baseline.predict_node_blocks(batch["atomic_numbers"][: slots.domain.n_own])
        return nodes.numpy(), self._baseline.predict_edge_blocks(batch).numpy()

    def _number_blocks(self, labelled: Labelled, stored: Ints, n_stored: int) -> tuple[Ints, int]:
        """Number blocks over all ranks: stored blocks in their order, then added ones by atom.

        Returns:
            The number of each block, and the number of blocks of all ranks.
        """
        n_atoms = len(labelled.matrix.structure.positions)
        rows = labelled.matrix.block_atoms[len(stored) :, 0]
        counts = np.bincount(rows, minlength=n_atoms)
        totals = self._ranks.all_reduce_sum(torch.from_numpy(counts.copy())).numpy()
        begins = n_stored + np.cumsum(totals) - totals
        places = np.concatenate([stored, begins[rows] + count_within(counts)])
        return places, n_stored + int(totals.sum())


def collect_pieces(own: OwnBlocks, ranks: Ranks) -> Iterator[PredictedMatrix]:
    """Yield on rank 0 the blocks of all ranks, in order, some at a time; all ranks iterate."""
    for begin in range(0, own.n_total, _BLOCKS):
        rows = np.flatnonzero((own.places >= begin) & (own.places < begin + _BLOCKS))
        parts = ranks.gather_on_zero((own.places[rows], own.blocks.take(rows)))
        if parts:
            places, blocks = zip(*parts, strict=True)
            yield join_blocks(blocks).take(np.argsort(np.concatenate(places)))


def _list_first_edges(slots: BlockSlots) -> tuple[Ints, Ints]:
    """Return local rows and shifts of the edges of a rank that are the first of their pair."""
    domain = slots.domain
    return domain.edge_index.numpy()[slots.first], domain.edge_shift.numpy()[slots.first]
