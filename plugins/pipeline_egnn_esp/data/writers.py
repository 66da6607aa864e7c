"""Matrices as CP2K prints them: a text file for each periodic image."""

from pathlib import Path

import numpy as np

from pipeline_core.units import HARTREE
from pipeline_egnn_esp.data.csr import write_csr
from pipeline_egnn_esp.data.matrices import BlockMatrix


def write_cp2k(folder: Path, matrix: BlockMatrix, project: str = "job") -> list[Path]:
    """Write Kohn-Sham and overlap matrices as &KS_CSR_WRITE and &S_CSR_WRITE with REAL_SPACE do.

    Both members of each hermitian pair are written, in Hartree and 1; IMAGES lists the images as
    CP2K's output does. Positions must be wrapped into [-1/2, 1/2) of the cell for the images to
    have CP2K's meaning.

    Args:
        folder: Made if it does not exist.
        matrix: Matrices to write.
        project: Prefix of the file names.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    matrix = matrix.join_partners()
    row, column = matrix.find_entry_orbitals()
    images, number = np.unique(matrix.block_shift, axis=0, return_inverse=True)
    of_entries = np.repeat(number.ravel(), matrix.shapes.prod(axis=1))
    written = []
    order = np.argsort(np.abs(images).sum(axis=1), kind="stable")
    for n, image in enumerate(order, 1):
        here = of_entries == image
        for kind, values, unit in (("KS", matrix.hamiltonian, HARTREE), ("S", matrix.overlap, 1)):
            path = folder / f"{project}-{kind.lower()}-{kind}_SPIN_1_R_{n}-1_0.csr"
            write_csr(path, row[here], column[here], values[here] / unit)
            written.append(path)
    listed = enumerate(images[order].tolist(), 1)
    lines = ["Number X Y Z", *(f"{n} {x} {y} {z}" for n, (x, y, z) in listed), ""]
    listing = folder / "IMAGES"
    listing.write_text("\n".join(lines))
    return [*written, listing]
