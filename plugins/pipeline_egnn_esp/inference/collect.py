"""Collection of blocks from all ranks into one file of matrices, some atoms at a time."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_atoms.structure import Structure
from pipeline_core.artifacts import store
from pipeline_core.distributed.ranks import Ranks
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.matrices import BlockIndex, BlockMatrix, count_within
from pipeline_egnn_esp.inference.forward import PredictedBlocks
from pipeline_egnn_esp.inference.slots import BlockSlots
from pipeline_egnn_esp.inference.tiling import Tiling

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SCHEMA: Final = "plugin/egnn_esp/matrices"
SLAB_BYTES: Final = 64
"""Bytes of an element of a padded block while it is sent, on all ranks together."""
_CHUNK_ROWS: Final = 2**14
"""Rows of a piece of a dataset of the file."""


@dataclass(frozen=True)
class Blocks:
    """Blocks of some atoms, sorted by atom of the rows, atom of the columns, and image.

    Attributes:
        names: (Rx, Ry, Rz, i, j) of each block, (n_blocks, 5).
        entries: Elements of H, eV, and of S if available, one block after the other, each by rows,
            (1 or 2, n_entries).
    """

    names: Ints
    entries: Floats


class Source:
    """Source of the blocks of this rank's atoms.

    Args:
        slots: Slots of this rank.
        predicted: Predicted blocks of this rank.
        basis: Basis of the model.
        tiling: Source of the overlap; None if it is unknown.
    """

    def __init__(
        self,
        slots: BlockSlots,
        predicted: PredictedBlocks,
        basis: Basis,
        tiling: Tiling | None,
    ) -> None:
        domain = slots.domain
        self._domain, self._predicted = domain, predicted
        self._numbers = domain.structure.atomic_numbers
        self._basis, self._tiling = basis, tiling
        self._own = domain.rows[: domain.n_own]
        self._first = np.flatnonzero(slots.first)
        receivers = domain.edge_index[:, 0].numpy()[self._first]
        self._offsets = np.searchsorted(receivers, np.arange(domain.n_own + 1))

    def collect_blocks(self, begin: int, end: int) -> Blocks:
        """Return the blocks whose rows belong to own atoms with numbers from begin to end - 1."""
        a, b = np.searchsorted(self._own, [begin, end])
        slots = slice(self._offsets[a], self._offsets[b])
        edges = self._first[slots]
        own, domain = self._own[a:b], self._domain
        pairs = domain.rows[domain.edge_index.numpy()[edges]]
        atoms = np.concatenate([np.stack([own, own], axis=1), pairs])
        shifts = np.concatenate(
            [np.zeros((b - a, 3), dtype=np.int64), domain.edge_shift.numpy()[edges]]
        )
        parts = [self._predicted.nodes[a:b], self._predicted.edges[slots]]
        blocks = torch.cat([part.cpu().double() for part in parts]).numpy()[None]
        if self._tiling is not None:
            atoms, shifts, blocks = self._add_overlap(own, atoms, shifts, blocks[0])
        order = np.lexsort([shifts[:, 2], shifts[:, 1], shifts[:, 0], atoms[:, 1], atoms[:, 0]])
        atoms, shifts = atoms[order], shifts[order]
        ends = self._numbers[atoms].T
        entries = [self._basis.unpad(one[order], *ends) for one in blocks]
        return Blocks(np.concatenate([shifts, atoms], axis=1), np.stack(entries))

    def find_shapes(self, names: Ints) -> Ints:
        """Return rows and columns of blocks, (n_blocks, 2)."""
        return self._basis.count_orbitals_per_atom(self._numbers)[names[:, 3:]]

    def sort(self, blocks: Blocks) -> Blocks:
        """Return blocks sorted by the atom of their rows; blocks of an atom keep their order."""
        order = np.argsort(blocks.names[:, 3], kind="stable")
        sizes = self.find_shapes(blocks.names).prod(axis=1)
        begins, lengths = (np.cumsum(sizes) - sizes)[order], sizes[order]
        places = np.repeat(begins, lengths) + count_within(lengths)
        return Blocks(blocks.names[order], blocks.entries[:, places])

    def _add_overlap(
        self, own: Ints, atoms: Ints, shifts: Ints, blocks: Floats
    ) -> tuple[Ints, Ints, Floats]:
        """Join the overlap to the Hamiltonian; either is zero where only the other has blocks.

        Returns:
            Atoms, shifts, and blocks (2, n_blocks, n_common, n_common).
        """
        assert self._tiling is not None
        stored, images, numbers = self._tiling.find_blocks(own)
        ends = self._numbers[stored].T
        overlap = self._basis.pad(self._tiling.gather_entries("overlap", numbers), *ends)
        place = BlockIndex(stored, images).find(atoms, shifts)
        beside = np.zeros_like(blocks)
        beside[place >= 0] = overlap[place[place >= 0]]
        alone = np.ones(len(overlap), dtype=bool)
        alone[place[place >= 0]] = False
        rest = overlap[alone]
        pair = [np.concatenate([blocks, np.zeros_like(rest)]), np.concatenate([beside, rest])]
        return (
            np.concatenate([atoms, stored[alone]]),
            np.concatenate([shifts, images[alone]]),
            np.stack(pair),
        )


def split_atoms(
    slots: BlockSlots, tiling: Tiling | None, block_bytes: int, work_bytes: int, ranks: Ranks
) -> Ints:
    """Return bounds of ranges of atoms whose blocks are collected together, equal on all ranks.

    Args:
        slots: Slots of this rank.
        tiling: Source of the overlap; None if it is unknown.
        block_bytes: Bytes of a block while it is sent.
        work_bytes: Bytes that the blocks of a range may take.
        ranks: All ranks.
    """
    n_atoms = len(slots.domain.structure.positions)
    counts = np.bincount(slots.domain.edge_index[:, 0].numpy()[slots.first], minlength=1)
    own = max(1 + int(counts.max(initial=0)), tiling.most_blocks if tiling is not None else 0)
    most = max(ranks.gather(own))
    size = max(1, work_bytes // (most * block_bytes))
    return np.append(np.arange(0, n_atoms, size), n_atoms)


def write_matrices(
    path: Path,
    provenance: Mapping[str, Any],
    group: str,
    structure: Structure,
    source: Source,
    bounds: Ints,
    ranks: Ranks,
) -> None:
    """Write the blocks of all ranks to one file, on rank 0; all ranks call it.

    The reader `packed` reads the file if it has the overlap.

    Args:
        path: The file, written whole or not at all.
        provenance: Provenance of the file.
        group: Name of the structure in the file.
        structure: All atoms.
        source: Blocks of this rank.
        bounds: From `split_atoms`.
        ranks: All ranks.
    """
    pieces = (source.collect_blocks(*ends) for ends in pairwise(bounds.tolist()))
    if not ranks.is_rank_zero:
        for piece in pieces:
            ranks.gather_on_zero(piece)
        return
    with store.create(path, SCHEMA, provenance) as file:
        file.attrs["energy_unit"] = "eV"
        writer = _Writer(file.create_group(group), structure)
        for piece in pieces:
            parts = ranks.gather_on_zero(piece)
            entries = np.concatenate([part.entries for part in parts], axis=1)
            blocks = source.sort(Blocks(np.concatenate([part.names for part in parts]), entries))
            writer.add(blocks, source.find_shapes(blocks.names))


class _Writer:
    """Writer of the growing datasets of one structure."""

    def __init__(self, group: h5py.Group, structure: Structure) -> None:
        self._group = group
        for name, data in vars(structure).items():
            group.create_dataset(name, data=data)

    def add(self, blocks: Blocks, shapes: Ints) -> None:
        """Append blocks of the given shapes."""
        columns = {"atom_pairs": blocks.names.astype("i4"), "chunk_shapes": shapes.astype("i4")}
        columns |= dict(zip("HS", blocks.entries, strict=False))
        for name, rows in columns.items():
            if name not in self._group:
                row = rows.shape[1:]
                self._group.create_dataset(
                    name,
                    (0, *row),
                    rows.dtype,
                    maxshape=(None, *row),
                    chunks=(_CHUNK_ROWS, *row),
                )
            data = self._group[name]
            data.resize(len(data) + len(rows), axis=0)
            data[len(data) - len(rows) :] = rows


def read_matrices(path: Path, group: str, basis: Basis) -> BlockMatrix:
    """Read the matrices of a structure, with overlap, that `write_matrices` has written."""
    with store.open_artifact(path, SCHEMA) as file, store.explain_damage(path):
        datasets = {name: data[()] for name, data in file[group].items()}
    names = datasets["atom_pairs"].astype(np.int64)
    structure, matrices = Structure.of_fields(datasets), (datasets["H"], datasets["S"])
    return BlockMatrix(structure, basis, names[:, 3:], names[:, :3], *matrices)
