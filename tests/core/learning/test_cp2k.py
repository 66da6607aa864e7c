"""Inputs of CP2K with other structures. Oracle: the reader of inputs, on those that are shipped."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms

from pipeline_core.learning.cp2k import fill_input
from pipeline_core.readers.cp2k_input import read_structure

INPUTS = Path(__file__).parents[3] / "workflows/datasets/hfo2/inputs"


def test_a_filled_input_is_that_of_the_structure(tmp_path):
    path = INPUTS / "cubic-0600K/000.inp.gz"
    template = gzip.decompress(path.read_bytes()).decode()
    other = read_structure(INPUTS / "monoclinic-2000K/003.inp.gz")
    atoms = Atoms(other.atomic_numbers, other.positions, cell=other.cell, pbc=other.pbc)
    (tmp_path / "filled.inp").write_text(fill_input(template, atoms))
    read = read_structure(tmp_path / "filled.inp")
    assert np.array_equal(read.atomic_numbers, other.atomic_numbers)
    assert np.allclose(read.positions, other.positions, rtol=0, atol=1e-9)
    assert np.allclose(read.cell, other.cell, rtol=0, atol=1e-9)
    same = read_structure(path)
    back = Atoms(same.atomic_numbers, same.positions, cell=same.cell, pbc=same.pbc)
    assert fill_input((tmp_path / "filled.inp").read_text(), back).split() == template.split()


def test_an_element_without_a_kind_is_named():
    template = gzip.decompress((INPUTS / "cubic-0600K/000.inp.gz").read_bytes()).decode()
    with pytest.raises(ValueError, match="no &KIND Zr"):
        fill_input(template, Atoms("Zr", cell=[5, 5, 5], pbc=True))
    with pytest.raises(ValueError, match="0 sections &COORD"):
        fill_input(template.replace("COORD", "OTHER"), Atoms("O", cell=[5, 5, 5], pbc=True))
