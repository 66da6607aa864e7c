"""Read the real-space Kohn-Sham and overlap matrices of CP2K and pack them as atom-pair blocks.

CP2K writes one matrix a periodic image R. Its block (i, j) couples atom i of the home cell with
atom j of cell R, displaced by r_j + R cell - r_i, where r are the positions wrapped into
[-1/2, 1/2) of the cell, as the inputs of this data set give them. Units: Hartree for H, Å for
lengths. Orbitals of an atom: all s shells, then p (y, z, x), then d (xy, yz, z2, zx, x2-y2).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import h5py
import numpy as np

CUTOFF = 10.0
"""Longest pair distance kept by default, Å; the largest element beyond it is about 1e-5."""
STEPS = {"H": [(6.0, -20), (7.0, -21), (8.0, -22), (math.inf, -24)], "S": [(math.inf, -21)]}
"""Multiples of which power of two elements are rounded to, up to which distance, Å."""
FINE = {name: [(math.inf, -24)] for name in STEPS}
"""The same, without regard to the distance: 6e-8."""
ORBITALS = {"Hf": 10, "O": 4}
ATOMIC_NUMBERS = {"Hf": 72, "O": 8}
_RECORD = np.dtype("<i4, <i4, <i4, <f8, <i4")
"""Length, row, column, value, length: one Fortran record; rows and columns count from 1."""


Steps = Sequence[tuple[float, int]]
Rounding = Mapping[str, Steps]


class Blocks(TypedDict):
    """Real-space matrices of one frame; a block is row-major, blocks lie one after the other.

    One block of each hermitian pair is kept, H_ji(-R) being the transpose of H_ij(R): R is
    lexicographically positive, or R is zero and i <= j.
    """

    positions: np.ndarray  # (n_atoms, 3), Å
    cell: np.ndarray  # (3, 3), rows, Å
    atomic_numbers: np.ndarray  # (n_atoms,)
    atom_pairs: np.ndarray  # (n_pairs, 5): R1 R2 R3 i j, atoms from 0
    chunk_shapes: np.ndarray  # (n_pairs, 2): orbitals of i and of j
    H: np.ndarray  # (n_elements,), Hartree
    S: np.ndarray  # (n_elements,)


class Levels(TypedDict):
    """Levels of one frame, as CP2K prints them."""

    k_points: np.ndarray  # (n_k, 3), reciprocal lattice vectors
    levels: np.ndarray  # (n_k, n_levels), Hartree


def read_images(log: str, matrix: str) -> list[tuple[int, int, int]]:
    """Return the images R of the files of one matrix, in the order of the files.

    Args:
        log: Text of the CP2K output.
        matrix: "KS" or "S".

    Raises:
        ValueError: The output lists no images.
    """
    pattern = rf" {matrix} CSR write\| (\d+) periodic images\n.*\n((?:(?: +-?\d+){{4}}\n)+)"
    result = re.search(pattern, log)
    if result is None:
        raise ValueError(
            f"the output lists no images of {matrix}; set REAL_SPACE in {matrix}_CSR_WRITE"
        )
    rows = [[int(word) for word in line.split()] for line in result[2].splitlines()]
    assert len(rows) == int(result[1])
    return [(x, y, z) for _, x, y, z in rows]


def read_csr(path: Path, n_orbitals: int) -> np.ndarray:
    """Return a matrix from CP2K's binary CSR file, one Fortran record an element.

    Returns:
        Dense matrix. (n_orbitals, n_orbitals)
    """
    records = np.fromfile(path, dtype=_RECORD)
    matrix = np.zeros((n_orbitals, n_orbitals))
    matrix[records["f1"] - 1, records["f2"] - 1] = records["f3"]
    return matrix


def read_structure(text: str) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Return cell (3, 3), symbols and positions (n_atoms, 3), in Å, from an input."""
    cell = re.findall(r"^ +[ABC] ((?:-?\d+\.\d+ ?){3})$", text, re.MULTILINE)
    atoms = re.findall(r"^ +(Hf|O) ((?:-?\d+\.\d+ ?){3})$", text, re.MULTILINE)
    vectors = np.array([row.split() for row in cell], dtype=float)
    positions = np.array([row.split() for _, row in atoms], dtype=float)
    return vectors, [symbol for symbol, _ in atoms], positions


def read_levels(log: str) -> Levels:
    """Return the levels at the k-points of the calculation.

    Args:
        log: Text of the CP2K output.

    Raises:
        ValueError: The output lists no k-points or no levels.
    """
    grid = re.search(r"^ BRILLOUIN\| K-Point grid((?: +\d+){3})$", log, re.MULTILINE)
    points = re.findall(r"^ BRILLOUIN\| +\d+ +\d\.\d+((?: +-?\d\.\d+){3})$", log, re.MULTILINE)
    # Those of earlier steps have a title that names the step, too.
    blocks = re.split(r"^ MO\| EIGENVALUES .*NUMBERS FOR K POINT \d+$", log, flags=re.MULTILINE)
    row = re.compile(r"^ MO\| +\d+ +(-?\d+\.\d+) +-?\d+\.\d+ +\d\.\d+$", re.MULTILINE)
    if grid is None or not points or len(blocks) != 1 + len(points):
        raise ValueError("the output lists no k-points or no levels; print KPOINTS and MO")
    # Five digits are printed; points of a Monkhorst-Pack grid are multiples of 1/(2n).
    steps = 2 * np.array(grid[1].split(), dtype=int)
    k_points = np.array([point.split() for point in points], dtype=float)
    return Levels(
        k_points=np.rint(k_points * steps) / steps,
        levels=np.array([row.findall(block) for block in blocks[1:]], dtype=float),
    )


def pack(folder: Path, text: str, log: str, cutoff: float = CUTOFF) -> Blocks:
    """Return the blocks of all pairs up to a distance from the files of a CP2K job.

    Images that CP2K does not list hold no overlapping pair and are left out.

    Args:
        folder: Where CP2K wrote `job-ks-*.csr` and `job-s-*.csr`.
        text: The job's input.
        log: The job's output.
        cutoff: Longest distance, Å.
    """
    cell, symbols, positions = read_structure(text)
    sizes = np.array([ORBITALS[symbol] for symbol in symbols])
    stops = np.cumsum(sizes)
    images = read_images(log, "KS")
    assert images == read_images(log, "S")
    pairs, h_blocks, s_blocks = [], [], []
    for number, image in enumerate(images, start=1):
        if image < (0, 0, 0):
            continue
        h = read_csr(folder / f"job-ks-KS_SPIN_1_R_{number}-1_0.csr", stops[-1])
        s = read_csr(folder / f"job-s-S_SPIN_1_R_{number}-1_0.csr", stops[-1])
        vectors = positions[None] + np.array(image) @ cell - positions[:, None]  # (n, n, 3)
        for i, j in np.argwhere(np.linalg.norm(vectors, axis=2) <= cutoff):
            if any(image) or i <= j:
                block = slice(stops[i] - sizes[i], stops[i]), slice(stops[j] - sizes[j], stops[j])
                pairs.append((*image, i, j))
                h_blocks.append(h[block].ravel())
                s_blocks.append(s[block].ravel())
    atom_pairs = np.array(pairs, dtype=np.int32)
    return Blocks(
        positions=positions,
        cell=cell,
        atomic_numbers=np.array([ATOMIC_NUMBERS[symbol] for symbol in symbols], dtype=np.int32),
        atom_pairs=atom_pairs,
        chunk_shapes=sizes[atom_pairs[:, 3:]].astype(np.int32),
        H=np.concatenate(h_blocks),
        S=np.concatenate(s_blocks),
    )


def find_exponents(lengths: np.ndarray, steps: Steps) -> np.ndarray:
    """Return the power of two to whose multiples the elements of each block are rounded.

    Args:
        lengths: Distances of the pairs, Å. (n,)
        steps: Exponents, each with the distance up to which it holds.
    """
    ends = np.array([end for end, _ in steps])
    powers = np.array([power for _, power in steps], dtype=np.int8)
    return powers[np.searchsorted(ends, lengths)]


def encode(values: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """Return elements as whole numbers: 0, -1, 1, -2, 2, ... times 2^power are 0, 1, 2, 3, 4, ...

    Small ones have zeros in front, whatever their sign, which compress well.

    Args:
        values: Elements. (n,)
        powers: Exponent of each. (n,)
    """
    counts = np.rint(np.ldexp(np.asarray(values, dtype=np.float64), -powers.astype(np.int32)))
    assert np.abs(counts).max(initial=0) < 2**31
    numbers = counts.astype(np.int64)
    return np.where(numbers < 0, -2 * numbers - 1, 2 * numbers).astype(np.uint32)


def decode(numbers: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """Return the elements that `encode` made whole numbers of."""
    counts = (numbers // 2).astype(np.int64)
    return np.ldexp(np.where(numbers % 2, -counts - 1, counts).astype(np.float64), powers)


def read(frame: h5py.Group, name: str) -> np.ndarray:
    """Return the elements of `H` (Hartree) or `S` of one frame."""
    n_elements = frame["chunk_shapes"][()].prod(axis=1)
    return decode(frame[name][()], np.repeat(frame[f"{name}_powers"][()], n_elements))


def write(
    path: Path, frame: str, arrays: Mapping[str, np.ndarray], cutoff: float, steps: Rounding = STEPS
) -> None:
    """Write one frame as the group `frame` of an HDF5 file, replacing an older one.

    Args:
        path: The file.
        frame: Name of the group.
        arrays: Blocks, and levels if they are known.
        cutoff: Longest distance of the blocks, Å.
        steps: How H and S are rounded.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    pairs, positions = arrays["atom_pairs"], arrays["positions"]
    vectors = positions[pairs[:, 4]] + pairs[:, :3] @ arrays["cell"] - positions[pairs[:, 3]]
    n_elements = arrays["chunk_shapes"].prod(axis=1)
    stored = dict(arrays)
    for name in ("H", "S"):
        powers = find_exponents(np.linalg.norm(vectors, axis=1), steps[name])
        stored |= {
            name: encode(arrays[name], np.repeat(powers, n_elements)),
            f"{name}_powers": powers,
        }
    for name in ("atom_pairs", "chunk_shapes"):
        stored[name] = arrays[name].astype(np.int8)
    # The compact layout of HDF5 1.10 saves 20 kB a frame.
    with h5py.File(path, "a", libver=("v110", "v110")) as file:
        file.attrs.update(cutoff=cutoff, length_unit="angstrom", energy_unit="hartree")
        if frame in file:
            del file[frame]
        group = file.create_group(frame)
        for name, values in stored.items():
            group.create_dataset(
                name, data=values, chunks=values.shape, compression=9, shuffle=True
            )
