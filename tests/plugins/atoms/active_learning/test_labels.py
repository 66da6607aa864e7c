"""Labels, one a file. Oracles: ASE's EMT; a program that ends as it is told."""

import os
import sys

import ase.io
import numpy as np
import pytest
from ase.calculators.emt import EMT

from pipeline_atoms.active_learning.labels import label_structure
from pipeline_atoms.config.learning import LabelWith
from pipeline_atoms.readers import BadFrame, extxyz
from pipeline_atoms.readers.catalogue import open_frames
from pipeline_atoms.testing.example_data import make_alloys

PROGRAM = """
import sys
from ase.io import read, write
from ase.calculators.emt import EMT
open(sys.argv[3], "a").write("called\\n")
atoms = read(sys.argv[1])
if len(sys.argv) > 4:
    atoms = atoms[::-1]
atoms.calc = EMT()
atoms.get_potential_energy(), atoms.get_stress()
write(sys.argv[2], atoms)
"""


def make_structure():
    atoms = make_alloys(1, seed=4)[0]
    atoms.calc = None
    return atoms


def make_command(folder, *words):
    program = folder / "program.py"
    program.write_text(PROGRAM)
    parts = [sys.executable, program, "{structure}", "{label}", folder / "calls", *words]
    return LabelWith(command=" ".join(map(str, parts)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["calculator", "command"])
def test_a_label_is_what_was_computed_and_is_kept(tmp_path, kind):
    atoms, path = make_structure(), tmp_path / "labels/0.extxyz"
    options = LabelWith(calculator="emt") if kind == "calculator" else make_command(tmp_path)
    assert label_structure(atoms, options, path) == "labelled"
    written = ase.io.read(path)
    atoms.calc = EMT()
    assert written.get_potential_energy() == pytest.approx(atoms.get_potential_energy(), abs=1e-6)
    assert np.allclose(written.get_forces(), atoms.get_forces(), atol=1e-6)
    assert np.allclose(written.get_stress(), atoms.get_stress(), atol=1e-7)
    before = path.stat()
    assert label_structure(atoms, options, path) == "kept"
    assert os.path.samestat(path.stat(), before)
    moved = atoms.copy()
    moved.positions[0] += 0.1
    assert label_structure(moved, options, path) == "labelled"
    assert list(path.parent.iterdir()) == [path]


def test_without_self_consistency_the_import_is_told(tmp_path):
    atoms, path = make_structure(), tmp_path / "0.extxyz"
    program = "import sys; t = open(sys.argv[1]).read().splitlines(); t[1] += ' energy=nan'; "
    program += "open(sys.argv[2], 'w').write(chr(10).join(t) + chr(10))"
    options = LabelWith(command=f'{sys.executable} -c "{program}" {{structure}} {{label}}')
    assert label_structure(atoms, options, path) == "not converged"
    frames = list(open_frames(path, extxyz.READER, {}))
    assert [type(one) for one in frames] == [BadFrame]


@pytest.mark.slow
def test_programs_that_fail_leave_nothing_and_are_told(tmp_path):
    atoms, path = make_structure(), tmp_path / "labels/0.extxyz"
    # Processes of several threads would take more cores than there are.
    said = "sh -c 'echo $2 cores, $OMP_NUM_THREADS threads' sh {structure}"
    for options, message in (
        (LabelWith(command="no_such_program {structure} {label}"), "cannot be started"),
        (LabelWith(command="false {structure} {label}"), "status 1 and no label"),
        (LabelWith(command=f"{said} {{threads}} {{label}}"), "3 cores, 1 threads"),
        (LabelWith(command=f"{said} of {{label}}"), "3 threads"),
        (LabelWith(calculator="nothing"), "ASE has no 'nothing'"),
        (make_command(tmp_path, "reversed"), "of another structure"),
        (LabelWith(cp2k=str(tmp_path / "none.inp")), "cannot be read"),
    ):
        with pytest.raises(ValueError, match=message):
            label_structure(atoms, options, path, threads=3)
    assert not path.exists()
    with pytest.raises(ValueError, match="name one of cp2k, command and calculator"):
        LabelWith(cp2k="a.inp", calculator="emt")
    with pytest.raises(ValueError, match=r"has to hold the word \{label\}"):
        LabelWith(command="vasp {structure}")
