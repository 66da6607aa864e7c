"""Matrices as CP2K prints them: a text file for each periodic image."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline_core.units import HARTREE
from pipeline_egnn_esp.matrices import BlockMatrix
from pipeline_egnn_esp.sources.csr import write_csr


def write_cp2k(folder: Path, matrix: BlockMatrix, project: str = "job") -> list[Path]:
    """Write Kohn-Sham and overlap matrices as &KS_CSR_WRITE and &S_CSR_WRITE with REAL_SPACE do.

    Both members of each hermitian pair are written, in Hartree and 1; IMAGES lists the images as
    CP2K's output does. Positions have to be wrapped into [-1/2, 1/2) of the cell for CP2K's own
    meaning of the images.

    Args:
        folder: Made if it does not exist.
        matrix: What is written.
        project: What the names begin with.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    row, column = matrix.entry_orbitals()
    shift = np.repeat(matrix.block_shift, matrix.shapes.prod(axis=1), axis=0)
    other = np.repeat(~matrix.is_on_site, matrix.shapes.prod(axis=1))
    shifts = np.concatenate([shift, -shift[other]])
    rows, columns = np.concatenate([row, column[other]]), np.concatenate([column, row[other]])
    images = np.unique(shifts, axis=0)
    images = images[np.argsort(np.abs(images).sum(axis=1), kind="stable")]
    written = []
    for kind, values in (("KS", matrix.hamiltonian / HARTREE), ("S", matrix.overlap)):
        value = np.concatenate([values, values[other]])
        for number, image in enumerate(images, 1):
            chosen = (shifts == image).all(axis=1)
            path = folder / f"{project}-{kind.lower()}-{kind}_SPIN_1_R_{number}-1_0.csr"
            write_csr(path, rows[chosen], columns[chosen], value[chosen])
            written.append(path)
    lines = ["Number X Y Z", *(f"{n} {x} {y} {z}" for n, (x, y, z) in enumerate(images, 1)), ""]
    listing = folder / "IMAGES"
    listing.write_text("\n".join(lines))
    return [*written, listing]
