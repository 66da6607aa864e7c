"""Bad files of matrices in other formats than CP2K's, and bad dataset files.

Each error names the file, what is wrong with it, and what to do.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from pydantic import ValidationError

from pipeline_core.project.run import DatasetRun
from pipeline_egnn_esp.data import deeph
from pipeline_egnn_esp.data.basis import count_orbitals
from pipeline_egnn_esp.data.csr import read_csr
from pipeline_egnn_esp.data.datasets import MatrixDataset
from pipeline_egnn_esp.data.deeph import write_deeph
from plugins.egnn_esp.reference import (
    HAFNIA,
    WHOLE,
    change_file,
    read_matrices_of,
    refuse,
    write_dataset,
)


def _copy(file: h5py.File) -> None:
    path = Path(__file__).parents[4] / "workflows/datasets/hfo2/matrices/cubic-0600K.h5"
    with h5py.File(path) as source:
        file.attrs.update(source.attrs)
        source.copy("000", file)


def make_packed_dataset(folder: Path, **options: Any) -> DatasetRun:
    source = {"reader": "packed", "path": f"{folder}/set.h5", "basis": HAFNIA, **options}
    return write_dataset(folder, source, split={"val": 0, "test": 0})


def _replace(file: h5py.File, name: str, values: np.ndarray) -> None:
    del file["000"][name]
    file["000"][name] = values


def _swap(file: h5py.File, pair: list[int]) -> None:
    positions = file["000/positions"][()]
    positions[pair] = positions[pair[::-1]]
    file["000/positions"][...] = positions


def _wrap(file: h5py.File) -> None:
    cell = file["000/cell"][()]
    file["000/positions"][...] = (file["000/positions"][()] @ np.linalg.inv(cell) % 1) @ cell


@pytest.mark.parametrize(("change", "words"), [
    (lambda f: _swap(f, [0, 2]), ["set.h5:.*000", "not symmetric about the line", "not in the"]),
    (lambda f: _swap(f, [5, 9]), ["set.h5:.*000", "not symmetric about the line", "not in the"]),
    (_wrap, ["set.h5:000", "the images refer to other positions"]),
    (lambda f: _replace(f, "H", f["000/H"][:-3]), ["truncated: H has .* elements"]),
    (lambda f: f.attrs.__delitem__("energy_unit"), ["not state the unit", "set .*energy_unit"]),
    (lambda f: f["000"].__delitem__("S"), ["lacks S", "a structure needs"]),
    (lambda f: _replace(f, "S", f["000/S"][:-3]), ["truncated: S has .* elements"]),
    (lambda f: _replace(f, "S_powers", f["000/S_powers"][:-1]), ["S_powers", "too short"]),
    (lambda f: _replace(f, "atom_pairs", f["000/atom_pairs"][1:]), ["differ in length"]),
    (lambda f: f["000/atomic_numbers"].write_direct(np.full(12, 14, "i4")), ["holds Si", "Si: "]),
    (lambda f: _replace(f, "H", np.full(len(f["000/H"]), np.nan)), ["not finite"]),
    (lambda f: f["000"].__delitem__("H_powers"), ["whole numbers", "H_powers", "write"]),
    (lambda f: _replace(f, "atom_pairs", -f["000/atom_pairs"][()]), ["lacks|hermitian pair"]),
])  # fmt: skip
def test_a_bad_packed_file(tmp_path, change, words):
    with h5py.File(tmp_path / "set.h5", "w") as file:
        _copy(file)
        change(file)
    refuse(make_packed_dataset(tmp_path), "set.h5", *words)


@pytest.mark.parametrize(
    "basis", [{"Hf": [0, 1, 2], "O": [0, 1]}, {"Hf": [2, 1, 0, 0], "O": [1, 0]}]
)
def test_a_wrong_basis_of_a_packed_file(tmp_path, basis):
    shutil.copy(WHOLE, tmp_path / "set.h5")
    refuse(make_packed_dataset(tmp_path, basis=basis), "set.h5", "basis|shells", "correct")


def test_a_packed_file_that_is_none(tmp_path):
    (tmp_path / "set.h5").write_bytes((WHOLE).read_bytes()[:5000])
    refuse(make_packed_dataset(tmp_path), "set.h5", "cannot be read", "again")


def make_deeph_dataset(folder: Path, **options: Any) -> DatasetRun:
    source = {"reader": "deeph", "path": f"{folder}/hamiltonians.h5", **options}
    return write_dataset(folder, source, split={"val": 0, "test": 0})


def _write_file(path: Path, text: str) -> None:
    assert path.read_text() != text
    path.write_text(text)


def _edit(path: Path, change: Callable[[h5py.File], None]) -> None:
    with h5py.File(path, "a") as file:
        change(file)


@pytest.mark.slow
@pytest.mark.parametrize(("change", "words"), [
    (lambda p: (p / "overlaps.h5").unlink(), ["overlaps.h5: is missing"]),
    (lambda p: (p / "lat.dat").unlink(), ["lat.dat: is missing"]),
    (lambda p: _write_file(p / "lat.dat", "1 2\n3 4\n"), [r"lat.dat: has the shape \(2, 2\)"]),
    (lambda p: _write_file(p / "site_positions.dat", "1 x\n"), ["positions.dat: is not a table"]),
    (lambda p: _write_file(p / "element.dat", ""), ["element.dat: is not a table"]),
    (lambda p: change_file(p / "element.dat", lambda t: t.replace("8", "800")), ["atomic number"]),
    (lambda p: change_file(p / "orbital_types.dat", lambda t: t + "0\n"), ["4 lines for 3 atoms"]),
    (
        lambda p: _write_file(p / "orbital_types.dat", "0 1\n0\n0 1\n"),
        [r"atom 3 \(H\) has the shells"],
    ),
    (lambda p: _write_file(p / "orbital_types.dat", "0\n0\n0\n"), ["orbital_types.dat gives"]),
    (lambda p: _write_file(p / "orbital_types.dat", "9\n0\n0\n"), ["orbital_types.dat: shells"]),
    (lambda p: (p / "orbital_types.dat").write_bytes(b"\xb1\n0\n0\n"), ["are not degrees"]),
    (
        lambda p: _write_file(p / "info.json", json.dumps({"isspinful": True})),
        ["spinors", "spin-orbit"],
    ),
    (lambda p: _edit(p / "overlaps.h5", lambda f: f.move("[0, 0, 0, 1, 1]", "x")), ["'x' is not"]),
    (lambda p: _edit(p / "overlaps.h5", lambda f: f.move("[0, 0, 0, 3, 3]", "[0, 0, 0, 4, 3]")),
     ["out of the range 1 to 3"]),
    (lambda p: _edit(p / "hamiltonians.h5", lambda f: f["[0, 0, -1, 1, 1]"].write_direct(
        np.ones((4, 4)))), ["hamiltonian is not hermitian: .* transpose of H_ji"]),
])  # fmt: skip
def test_a_bad_folder_of_deeph(chain, tmp_path, change, words):
    folder = tmp_path / "deeph"
    write_deeph(folder, read_matrices_of(chain, cutoff=6.0))
    change(folder)
    refuse(make_deeph_dataset(folder), "deeph", *words)


def test_orbitals_in_another_order_than_that_of_the_layout(chain, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(deeph, "order_orbitals", lambda shells: np.arange(count_orbitals(shells)))
        write_deeph(tmp_path, read_matrices_of(chain, cutoff=6.0))
    words = "not symmetric about the line", "order of the layout .basis."
    refuse(make_deeph_dataset(tmp_path), *words)


@pytest.mark.parametrize(("content", "message"), [
    ({"split": {"method": "energy"}}, "matrices come without energies"),
    ({"split": {"method": "group"}}, "set `group` of every source"),
    ({"sources": []}, "at least 1 item"),
    ({"sources": [{"reader": "packed", "path": "x", "basis": {"Qq": [0]}}]}, "'Qq' is not an"),
    ({"sources": [{"reader": "packed", "path": "x", "basis": {"H": []}}]}, "at least 1 item"),
    ({"sources": [{"reader": "openmx", "path": "x"}]}, "packed.*cp2k_matrices.*deeph"),
])  # fmt: skip
def test_a_bad_dataset_file(content, message):
    source = {"reader": "cp2k_matrices", "path": "x"}
    with pytest.raises(ValidationError, match=message):
        MatrixDataset.model_validate({"description": "x", "sources": [source], **content})


def test_no_file_matches(tmp_path):
    refuse(
        make_packed_dataset(tmp_path),
        "matrices.yaml:.*sources.0.path: no file matches",
        "correct the",
    )


@pytest.mark.parametrize("row", ["1.5 1 0.5", "nan 1 0.5", "1 1e300 0.5", "1 1_0 0.5", "1 1"])
def test_a_row_of_a_sparse_matrix_that_is_none(tmp_path, row):
    path = tmp_path / "a.csr"
    path.write_text(f"{row}\n")
    with pytest.raises(ValueError, match=r"a\.csr: .*write it again|a\.csr: lines of 2"):
        read_csr(path, 4)
