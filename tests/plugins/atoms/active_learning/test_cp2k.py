"""CP2K for other structures. Oracles: the reader of inputs, on those that are shipped; CP2K itself.

The program is run where it is installed (Debian: cp2k and openmpi-bin).
"""

import gzip
import re
import shutil
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase import Atoms

from pipeline_atoms.active_learning.cp2k import count_cores, fill_input
from pipeline_atoms.active_learning.labels import label_structure
from pipeline_atoms.config.learning import LabelWith
from pipeline_atoms.importing.frames import make_sample
from pipeline_atoms.importing.sources import compute_factors
from pipeline_atoms.readers import cp2k
from pipeline_atoms.readers.catalogue import open_frames
from pipeline_atoms.readers.cp2k_input import read_structure

HAFNIA = Path(__file__).parents[4] / "workflows/datasets/hfo2"
INPUTS, TEMPLATE = HAFNIA / "inputs", HAFNIA / "single_point.inp"
MPIEXEC = Path("/usr/bin/mpiexec")  # of the MPI that Debian's package is built with

needs_cp2k = pytest.mark.skipif(
    not (shutil.which("cp2k.psmp") and MPIEXEC.exists()), reason="cp2k is not installed"
)


def read_atoms(name):
    read = read_structure(INPUTS / f"{name}.inp.gz")
    return Atoms(read.atomic_numbers, read.positions, cell=read.cell, pbc=read.pbc)


def write_cheap_input(folder, changed="", to=""):
    """Write the shipped input with a coarse grid and one k-point, and one word of it changed."""
    text = re.sub(r"(?s)&KPOINTS.*&END KPOINTS", "", TEMPLATE.read_text())
    text = text.replace("CUTOFF 300", "CUTOFF 100")
    assert changed in text
    path = folder / "cheap.inp"
    path.write_text(text.replace(changed, to))
    return str(path)


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


def test_cores_are_those_that_cp2k_says():
    output = gzip.decompress((HAFNIA / "outputs/cubic-0600K/000.log.gz").read_bytes()).decode()
    assert count_cores(output) == 1
    several = re.sub(r"(passing processes +)1", r"\g<1>3", output)
    assert count_cores(re.sub(r"(for this process +)1", r"\g<1>2", several)) == 6
    assert count_cores("") is None


@pytest.mark.slow
@needs_cp2k
def test_two_processes_label_as_the_shipped_output_does(tmp_path, monkeypatch):
    """The tolerances leave room for other versions of CP2K."""
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    options = LabelWith(cp2k=str(TEMPLATE), program=f"{MPIEXEC} -n {{threads}} cp2k.psmp")
    path, atoms = tmp_path / "0.extxyz", read_atoms("monoclinic-2000K/003")
    assert label_structure(atoms, options, path, threads=2) == "labelled"
    log = HAFNIA / "outputs/monoclinic-2000K/003.log.gz"
    frame = next(iter(open_frames(log, cp2k.READER, {})))
    known = make_sample(frame, list(frame.labels), compute_factors(cp2k.READER.units, "cp2k"))
    label = ase.io.read(path)
    assert label.get_potential_energy() == pytest.approx(float(known["energy"]), abs=1e-3)
    assert np.allclose(label.get_forces(), known["forces"], rtol=0, atol=1e-3)
    assert np.allclose(label.get_stress(voigt=False), known["stress"], rtol=0, atol=1e-4)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


@pytest.mark.slow
@needs_cp2k
def test_what_goes_wrong_in_cp2k_is_told(tmp_path):
    atoms, path = read_atoms("cubic-0600K/000"), tmp_path / "labels/0.extxyz"
    wrong = write_cheap_input(tmp_path, "SZV-MOLOPT-SR-GTH-q12", "SZV-NOTHING")
    with pytest.raises(ValueError, match="basis set <SZV-NOTHING> for element <Hf> was not"):
        label_structure(atoms, LabelWith(cp2k=wrong), path)
    short = write_cheap_input(tmp_path, "MAX_SCF 60", "MAX_SCF 1")
    copies = LabelWith(cp2k=short, program="env OMP_NUM_THREADS=1 cp2k.psmp")
    with pytest.raises(ValueError, match="was to use 2 cores, and each CP2K used 1"):
        label_structure(atoms, copies, path, threads=2)
    assert not path.exists()
    assert label_structure(atoms, LabelWith(cp2k=short), path) == "not converged"
    assert np.isnan(ase.io.read(path).get_potential_energy())
