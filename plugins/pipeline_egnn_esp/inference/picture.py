"""A matrix as a picture: the largest element of each pixel."""

from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from numpy.typing import NDArray

from pipeline_atoms.structure import INPUTS
from pipeline_core.artifacts import store
from pipeline_core.artifacts.extracts import BULK
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.matrices import count_within
from pipeline_egnn_esp.inference.collect import SCHEMA

Ints = NDArray[np.int64]

_BLOCKS: Final = 2**14
"""Blocks that are read at a time."""


def write_picture(group: h5py.Group, path: Path, name: str, basis: Basis, n_pixels: int) -> None:
    """Write the picture of a Hamiltonian, and the structure, to `picture/` of a group.

    `elements` (n, n) is the largest magnitude of the elements of a pixel, eV, zero where there are
    none; images of the cell are laid over each other. Attribute `orbitals`: rows of the matrix. A
    matrix with fewer rows than `n_pixels` has a pixel for each element.

    Args:
        group: Group to write to.
        path: File of the matrices.
        name: Group of the structure in the file.
        basis: Shells of the elements.
        n_pixels: Pixels of a side.
    """
    target = group.create_group("picture")
    target.attrs[BULK] = True
    with store.open_artifact(path, SCHEMA) as file, store.explain_damage(path):
        source = file[name]
        for part in INPUTS:
            target.create_dataset(part, data=source[part][()])
        counts = basis.count_orbitals_per_atom(source["atomic_numbers"][()])
        picture = _draw_pixels(source, counts, min(n_pixels, int(counts.sum())))
    target.create_dataset("elements", data=picture.astype("f4"), compression="gzip")
    target.attrs["orbitals"] = int(counts.sum())


def _draw_pixels(source: h5py.Group, counts: Ints, n: int) -> NDArray[np.float64]:
    pixel = (np.arange(counts.sum()) * n) // counts.sum()  # of each orbital
    starts, picture = np.cumsum(counts) - counts, np.zeros((n, n))
    begin = 0
    for first in range(0, len(source["atom_pairs"]), _BLOCKS):
        atoms = source["atom_pairs"][first : first + _BLOCKS, 3:].astype(np.int64)
        shapes: Any = counts[atoms]
        sizes = shapes.prod(axis=1)
        values = np.abs(source["H"][begin : begin + sizes.sum()])
        begin += len(values)
        row, column = np.divmod(count_within(sizes), np.repeat(shapes[:, 1], sizes))
        places = np.repeat(starts[atoms], sizes, axis=0)
        ends = pixel[row + places[:, 0]], pixel[column + places[:, 1]]
        np.maximum.at(picture, ends, values)
    return np.maximum(picture, picture.T)
