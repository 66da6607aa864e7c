"""Files read through ASE."""

import pickle
from pathlib import Path

import ase.db
import ase.io
import numpy as np
import pytest
from ase.constraints import FixAtoms
from pymatgen.core import Lattice, Structure
from pymatgen.io.cif import CifWriter

from pipeline_atoms.readers import BadFrame, Frame
from pipeline_atoms.readers.ase import READER, iterate_values, read
from pipeline_atoms.readers.catalogue import open_frames
from plugins.atoms.readers.conftest import assert_same


@pytest.mark.parametrize("name", ["a.traj", "a.db", "a.json"])
def test_results_come_back_as_they_were_written(tmp_path, water, name):
    ase.io.write(tmp_path / name, [water, water])
    frames = list(open_frames(tmp_path / name, READER, {}))
    assert [frame.index for frame in frames] == [0, 1]
    for frame in frames:
        assert_same(frame, water)


def test_constraints_do_not_zero_forces(tmp_path, water):
    forces = water.calc.results["forces"]
    water.set_constraint(FixAtoms([0, 1, 2]))
    ase.io.write(tmp_path / "a.traj", water)
    (frame,) = read(tmp_path / "a.traj", {})
    assert np.array_equal(frame.labels["forces"], forces)
    assert forces.all()


def test_a_database_gives_its_keys_for_grouping_and_as_labels(tmp_path, water):
    with ase.db.connect(tmp_path / "a.db") as database:
        database.write(water, phase="ice", dft_energy=-3.5, data={"dft_forces": np.ones((3, 3))})
    keys = {"energy": "dft_energy", "forces": "dft_forces"}
    (frame,) = read(tmp_path / "a.db", keys)
    assert frame.info["phase"] == "ice"
    assert frame.labels["energy"] == -3.5
    assert np.array_equal(frame.labels["forces"], np.ones((3, 3)))
    assert frame.labels.keys() == keys.keys()  # not the stress, which another method made
    (result,) = iterate_values(tmp_path / "a.db")
    assert result["dft_forces"].shape == (3, 3)
    assert result["energy"] == -14.25


def test_a_database_whose_columns_have_changed_places_is_refused(tmp_path, water):
    """The forces of three atoms are nine numbers, and so is a stress."""
    path = tmp_path / "a.db"
    ase.io.write(path, water)
    whole = path.read_bytes()
    damaged = whole.replace(b"forces BLOB,\n    stress BLOB,", b"stress BLOB,\n    forces BLOB,")
    assert damaged != whole
    path.write_bytes(damaged)
    (bad,) = read(path, {})
    assert "not their order in databases of ASE" in bad.reason


def test_info_and_arrays_may_hold_labels(tmp_path, water):
    water.calc = None
    water.info["E"] = -2.0
    water.set_array("F", np.full((3, 3), 0.5))
    ase.io.write(tmp_path / "a.extxyz", water)
    (frame,) = read(tmp_path / "a.extxyz", {"energy": "E", "forces": "F"})
    assert frame.labels["energy"] == -2.0
    assert np.array_equal(frame.labels["forces"], np.full((3, 3), 0.5))
    assert frame.info == {"config_type": "bulk water"}


def test_a_structure_file_has_no_labels(tmp_path, water):
    ase.io.write(tmp_path / "POSCAR", water, format="vasp")
    (frame,) = read(tmp_path / "POSCAR", {})
    assert frame.labels == {}
    assert np.array_equal(frame.positions, ase.io.read(tmp_path / "POSCAR").positions)


def test_a_damaged_file_ends_with_a_bad_frame(tmp_path, water):
    path = tmp_path / "a.extxyz"
    ase.io.write(path, [water, water])
    path.write_text("Hx ".join(path.read_text().rsplit("H ", 1)))
    good, bad = read(path, {})
    assert isinstance(good, Frame)
    assert bad == BadFrame(1, "ASE cannot read it, nor what follows: KeyError('Hx')")
    (tmp_path / "a.unknown").write_text("what is this?")
    (frame,) = read(tmp_path / "a.unknown", {})
    assert "ASE cannot read it" in frame.reason


class Planted:
    """What a program puts into a pickle to be run by whoever reads it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("magic", [b"PickleTrajectory", b""])
def test_a_pickled_trajectory_is_refused_and_nothing_in_it_is_run(tmp_path, magic):
    """Before 2015 ASE's trajectories were pickles; their names end as those of today do."""
    path, trace = tmp_path / "a.traj", tmp_path / "trace"
    content = pickle.dumps(Planted(trace))
    path.write_bytes(magic + content)
    with pytest.raises(ValueError, match=r"a\.traj: cannot be read .*not an ULM"):
        list(open_frames(path, READER, {}))
    assert not trace.exists()
    pickle.loads(content)  # noqa: S301 - which would have run it
    assert trace.exists()


CIF_CHANGES = {
    "atom": (lambda t: "\n".join(t.splitlines()[:-1]), "_chemical_formula_sum"),
    "token": (lambda t: t.replace("H2  ", "H2 0"), "Wrong number"),
    "group": (lambda t: t.replace("IT_number       1", "IT_number      11"), "its space group 11"),
    "occupancy": (lambda t: t.replace("1.0000", "0.5000", 1), "partially occupied"),
}


@pytest.mark.parametrize("name", CIF_CHANGES)
def test_cif_that_has_lost_atoms_is_refused(tmp_path, water, name):
    change, reason = CIF_CHANGES[name]
    path = tmp_path / "a.cif"
    ase.io.write(path, water)
    assert isinstance(next(read(path, {})), Frame)
    text = path.read_text()
    path.write_text(change(text))
    assert path.read_text() != text
    (bad,) = read(path, {})
    assert reason in bad.reason


@pytest.mark.filterwarnings("ignore:.*OLD_ERROR_HANDLING:DeprecationWarning")
def test_cif_of_pymatgen_is_read(tmp_path):
    structure = Structure.from_spacegroup("R-3c", Lattice.hexagonal(4.76, 13.0), ["Al", "O"],
                                          [[0, 0, 0.352], [0.306, 0, 0.25]])  # fmt: skip
    CifWriter(structure, symprec=0.01).write_file(tmp_path / "a.cif")
    (frame,) = read(tmp_path / "a.cif", {})
    assert len(frame.atomic_numbers) == 30


def test_json_without_its_list_of_rows_is_not_one_frame(tmp_path, water):
    path = tmp_path / "a.json"
    ase.io.write(path, [water, water])
    path.write_text(path.read_text().replace('"ids": [1, 2],\n', ""))
    *_, bad = read(path, {})
    assert "its list of rows lacks 2" in bad.reason
