"""What CP2K printed, datasets of it, and how the data stage refuses one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml

from pipeline_core.project.run import DatasetRun
from pipeline_core.stages.builtin import load_registry
from pipeline_core.units import HARTREE
from pipeline_egnn_esp.data.basis import Basis
from pipeline_egnn_esp.data.cp2k_matrices import read_run
from pipeline_egnn_esp.data.datasets import CP2KSource, MatrixDataset, PackedSource
from pipeline_egnn_esp.data.matrices import BlockMatrix
from pipeline_egnn_esp.data.packed import read_packed
from pipeline_egnn_esp.data.stage import make_data

ROOT = Path(__file__).parents[3]
CP2K = Path(__file__).parent / "cp2k"
WHOLE = ROOT / "workflows/datasets/hfo2/levels/matrices/tetragonal-2000K.h5"
"""Frame 000 of this run with all pairs, and the levels that CP2K prints of it."""
HAFNIA = {"Hf": [0, 0, 1, 2], "O": [0, 1]}
BASIS = Basis({symbol: tuple(shells) for symbol, shells in HAFNIA.items()})
WATER = {"O": [0, 1], "H": [0]}


def read_printed_levels(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return k-points (n_k, 3) and levels (n_k, n) in eV of a file of &BAND_STRUCTURE."""
    points, energies = [], []
    for line in path.read_text().splitlines():
        words = line.split()
        if line.startswith("#  Point"):
            points.append([float(word) for word in words[5:8]])
            energies.append([])
        elif words and words[0].isdigit():
            energies[-1].append(float(words[1]))
    return np.array(points), np.array(energies)


def read_cp2k_levels() -> tuple[np.ndarray, np.ndarray]:
    """Return k-points (27, 3) and levels (27, 72) in eV, as CP2K prints them, of `WHOLE`."""
    with h5py.File(WHOLE) as file:
        assert file.attrs["energy_unit"] == "hartree"
        return file["000/k_points"][()], file["000/levels"][()] * HARTREE


def read_matrices_of(folder: Path, **options: Any) -> BlockMatrix:
    """Return the matrices of a run of CP2K."""
    source = CP2KSource(reader="cp2k_matrices", path="out.log", **options)
    return read_run(folder / "out.log", source)[0]


def read_packed_frame(path: Path, frame: str = "000") -> BlockMatrix:
    """Return a frame of a packed file of hafnia."""
    source = PackedSource(reader="packed", path="x.h5", basis=HAFNIA)
    return dict(read_packed(path, source))[frame]


def read_shipped(run: str, frame: str = "000") -> BlockMatrix:
    """Return a shipped frame."""
    return read_packed_frame(ROOT / f"workflows/datasets/hfo2/matrices/{run}.h5", frame)


def select_within(matrix: BlockMatrix, cutoff: float) -> BlockMatrix:
    """Return the matrices without the blocks of pairs beyond a distance, Å."""
    return matrix.take(matrix.lengths <= cutoff)


def write_dataset(folder: Path, *sources: dict[str, Any], **more: Any) -> DatasetRun:
    """Write a dataset file and return its run."""
    content = {"description": "Matrices.", "plugin": "egnn_esp", "sources": list(sources), **more}
    path = folder / "workflows/datasets/matrices.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    options = MatrixDataset.model_validate(content)
    results = folder / "results/datasets/matrices"
    return DatasetRun("matrices", path, options, results, load_registry())


def refuse(run: DatasetRun, *words: str) -> None:
    """Check that the data stage refuses a dataset, says these words, and writes nothing."""
    with pytest.raises(ValueError, match=r".") as caught:
        make_data(run)
    for word in words:
        assert re.search(word, str(caught.value)), (word, str(caught.value))
    assert not run.data.exists()


def change_file(path: Path, change: Callable[[str], str]) -> None:
    before = path.read_text()
    after = change(before)
    assert after != before
    path.write_text(after)


def name_blocks(matrix, quantity):
    """Return the blocks of a matrix by their cells and atoms."""
    names = np.concatenate([matrix.block_shift, matrix.block_atoms], axis=1)
    return dict(zip(map(tuple, names.tolist()), matrix.iterate_blocks(quantity), strict=True))


def assert_same_blocks(ours, expected, quantity, tolerance):
    """Compare matrices block by block, all at once, since there are thousands."""
    ours, expected = name_blocks(ours, quantity), name_blocks(expected, quantity)
    assert ours.keys() == expected.keys()
    assert all(ours[name].shape == block.shape for name, block in expected.items())
    found, wanted = (np.concatenate([m[n].ravel() for n in expected]) for m in (ours, expected))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance)
