"""CP2K inputs. Oracle: ASE's parser."""

import gzip
import re

import numpy as np
import pytest
from ase.io.cp2k import read_cp2k_restart

from pipeline_atoms.readers.cp2k_input import read_structure
from plugins.atoms.readers.cp2k_files import HFO2, read_frames


def test_inputs_are_read_as_by_ase():
    paths = sorted(HFO2.glob("inputs/*/00[0-3].inp.gz"))
    assert len(paths) > 20
    for path in paths:
        with gzip.open(path, "rt") as file:
            atoms = read_cp2k_restart(file)
        result = read_structure(path)
        assert np.array_equal(result.atomic_numbers, atoms.numbers)
        assert np.array_equal(result.positions, atoms.positions)
        assert np.array_equal(result.cell, atoms.cell)
        assert np.array_equal(result.pbc, atoms.pbc)


def test_inputs_may_stand_in_a_mirrored_tree():
    (frame,) = read_frames(HFO2 / "outputs" / "cubic-0600K" / "000.log.gz")
    expected = read_structure(HFO2 / "inputs" / "cubic-0600K" / "000.inp.gz")
    assert np.array_equal(frame.positions, expected.positions)
    assert np.array_equal(frame.cell, expected.cell)
    assert frame.info["folder"] == "cubic-0600K"


CELLS = {
    "ABC 4 5 6": np.diag([4.0, 5.0, 6.0]),
    "ABC [bohr] 1 1 1": 0.529177210903 * np.eye(3),
    "ABC 2 2 2\n ALPHA_BETA_GAMMA 90 90 60": [[2, 0, 0], [1, np.sqrt(3), 0], [0, 0, 2]],
    "A 1 0 0\n b 1 2 0 ! comment\n C [angstrom] 0 0 3": [[1, 0, 0], [1, 2, 0], [0, 0, 3]],
}


def write_input(path, cell="ABC 4 4 4", coordinates="Fe1 1 2 3\n O_top 0 0 0", rest=""):
    path.write_text(
        f"&FORCE_EVAL\n&SUBSYS\n&CELL\n {cell}\n&END CELL\n&COORD # atoms\n {coordinates}\n&END\n"
        f"{rest}\n&END SUBSYS\n&END FORCE_EVAL\n"
    )
    return path


@pytest.mark.parametrize("cell", CELLS)
def test_cells_of_inputs(tmp_path, cell):
    result = read_structure(write_input(tmp_path / "a.inp", cell=cell))
    assert np.allclose(result.cell, CELLS[cell], rtol=0, atol=1e-12)
    assert result.atomic_numbers.tolist() == [26, 8]
    assert result.pbc.all()


@pytest.mark.parametrize(
    ("word", "pbc"), [("NONE", (0, 0, 0)), ("xy", (1, 1, 0)), ("XYZ", (1, 1, 1))]
)
def test_periodic_directions_of_inputs(tmp_path, word, pbc):
    result = read_structure(write_input(tmp_path / "a.inp", cell=f"ABC 4 4 4\n PERIODIC {word}"))
    assert result.pbc.tolist() == list(map(bool, pbc))


def test_coordinates_of_inputs(tmp_path):
    path = tmp_path / "a.inp"
    scaled = read_structure(write_input(path, coordinates="SCALED\n H 0.5 0.25 0"))
    assert np.allclose(scaled.positions, [[2, 1, 0]])
    bohr = read_structure(write_input(path, coordinates="UNIT bohr\n H 1 0 0"))
    assert np.allclose(bohr.positions, [[0.529177210903, 0, 0]])
    kind = read_structure(
        write_input(path, coordinates="X 0 0 0", rest="&KIND X\n ELEMENT Hf\n&END KIND")
    )
    assert kind.atomic_numbers.tolist() == [72]
    (tmp_path / "a.xyz").write_text("1\n\nHf 0 0 1\n")
    topology = "&TOPOLOGY\n COORD_FILE_NAME a.xyz\n COORD_FILE_FORMAT XYZ\n&END"
    outside = read_structure(write_input(path, coordinates="", rest=topology))
    assert np.allclose(outside.positions, [[0, 0, 1]])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cell": "ABC ${A} 4 4"}, "needs CP2K's preprocessor"),
        ({"cell": "CELL_FILE_NAME a.cell"}, "gives the cell neither as ABC nor as A, B and C"),
        ({"cell": "ABC inf 4 4"}, "a number of the structure is not finite"),
        ({"coordinates": ""}, "holds no coordinates"),
        ({"coordinates": "Qq 0 0 0"}, "'Q' is not a chemical element"),
        ({"rest": "&END\n&END\n&EXT_RESTART\n&END\n&A\n&B"}, "a restart file (&EXT_RESTART)"),
    ],
)
def test_inputs_that_are_not_understood(tmp_path, changes, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        read_structure(write_input(tmp_path / "a.inp", **changes))
