"""CP2K outputs.

Oracles: pymatgen's parser for what an output prints, ASE's for inputs and restart files, CP2K's own
pressure and finite strain for the sign and the unit of the stress.
"""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from ase.io.cp2k import read_cp2k_restart
from pymatgen.io.cp2k.outputs import Cp2kOutput

from pipeline_core.readers import BadFrame, Frame
from pipeline_core.readers.catalogue import open_frames
from pipeline_core.readers.cp2k import READER, read
from pipeline_core.readers.cp2k_input import read_structure
from pipeline_core.units import HARTREE, find_factor, find_stress_factor

RUNS = Path(__file__).parent / "cp2k_runs"
HFO2 = Path(__file__).parents[3] / "workflows" / "datasets" / "hfo2"


def read_frames(path):
    return list(open_frames(path, READER, {}))


def unpack(path, folder):
    target = folder / path.stem
    target.write_bytes(gzip.decompress(path.read_bytes()))
    return target


@pytest.fixture
def run(tmp_path):
    """Copy the files of a run, its output uncompressed; return the output."""

    def copy(name):
        for path in RUNS.glob(f"{name}[-.]*"):
            if path.suffix != ".gz":
                shutil.copy(path, tmp_path)
        return unpack(RUNS / f"{name}.out.gz", tmp_path)

    return copy


@pytest.mark.filterwarnings("ignore:Original input file not found")
@pytest.mark.parametrize("name", ["md", "geo_opt", "npt", "cell_opt"])
def test_printed_numbers_are_those_that_pymatgen_reads(tmp_path, name):
    frames = read_frames(RUNS / f"{name}.out.gz")
    alone = unpack(RUNS / f"{name}.out.gz", tmp_path)  # pymatgen prefers files beside the output
    output = Cp2kOutput(alone, auto_load=False)
    output.parse_energies()
    output.parse_forces()
    output.parse_stresses()
    assert [frame.index for frame in frames] == [0, 1, 2]
    energies = [frame.labels["energy"] * HARTREE for frame in frames]
    assert np.allclose(energies, output.data["total_energy"], rtol=1e-7)  # CODATA of other years
    assert np.array_equal(frames[-1].labels["forces"], output.data["forces"][-1])
    assert np.array_equal(
        [frame.labels["stress"] for frame in frames], output.data["stress_tensor"]
    )


@pytest.mark.parametrize(
    ("name", "cell_error"), [("md", 1e-12), ("geo_opt", 1e-12), ("npt", 1e-10), ("cell_opt", 1e-6)]
)
def test_the_last_structure_is_that_of_the_restart_file(name, cell_error):
    frame = read_frames(RUNS / f"{name}.out.gz")[-1]
    with (RUNS / f"{name}-1.restart").open() as file:
        atoms = read_cp2k_restart(file)
    assert np.array_equal(frame.atomic_numbers, atoms.numbers)
    assert np.allclose(frame.positions, atoms.positions, rtol=0, atol=6e-11)
    assert np.allclose(frame.cell, atoms.cell, rtol=0, atol=cell_error)
    assert frame.pbc.all()


@pytest.mark.parametrize("name", ["md", "geo_opt", "npt", "cell_opt"])
def test_the_first_structure_is_that_of_the_input(name):
    frame = read_frames(RUNS / f"{name}.out.gz")[0]
    assert frame.atomic_numbers.tolist() == [8, 1, 1]
    assert np.allclose(frame.positions, [[0, 0, 0], [0, 0.757, 0.587], [0, -0.757, 0.587]])
    assert np.array_equal(frame.cell, np.diag([5.0, 5.0, 5.2]))


def test_energies_of_dynamics_are_the_potential_energies_of_the_run():
    frames = read_frames(RUNS / "md.out.gz")
    potential = np.loadtxt(RUNS / "md-1.ener")[:, 4]
    assert np.allclose([f.labels["energy"] for f in frames], potential, rtol=0, atol=6e-10)
    assert frames[0].info == {"folder": "cp2k_runs", "project": "md", "run_type": "MD"}


def test_the_trace_of_the_stress_is_the_pressure_without_its_kinetic_part(run):
    text = run("md").read_text()
    pressure = float(re.search(r"MD_INI\| Pressure \[bar\] +(\S+)", text)[1])
    kinetic = float(re.search(r"MD_INI\| Kinetic energy \[hartree\] +(\S+)", text)[1])
    volume = float(re.search(r"MD_INI\| Cell volume \[bohr\^3\] +(\S+)", text)[1])
    frame = read_frames(RUNS / "md.out.gz")[0]
    stress = frame.labels["stress"] * find_factor("stress", READER.units.stress)
    ideal_gas = 2 * kinetic / (3 * volume) * find_factor("stress", "hartree/bohr^3")
    assert np.isclose(
        np.trace(stress) / 3 + ideal_gas, pressure * find_factor("stress", "bar"), rtol=1e-6
    )


@pytest.mark.parametrize("group", ["monoclinic-2000K-016", "cubic-2000K-019"])
@pytest.mark.parametrize(
    ("mode", "pattern"),
    [("hydrostatic", np.eye(3)), ("yz", np.eye(3)[[0, 2, 1]] - np.diag([1, 0, 0]))],
)
def test_stress_is_the_derivative_of_the_energy(group, mode, pattern):
    folder = HFO2 / "strain" / "outputs" / group
    names = ["unstrained", f"{mode}+0.0100", f"{mode}-0.0100"]
    (at_rest,), (longer,), (shorter,) = (read_frames(folder / f"{name}.log.gz") for name in names)
    volume = abs(np.linalg.det(at_rest.cell))
    difference = (longer.labels["energy"] - shorter.labels["energy"]) * HARTREE
    strain = np.linalg.solve(at_rest.cell, longer.cell - shorter.cell)  # twice the applied one
    assert np.allclose(strain, 0.02 * pattern, atol=1e-3)
    stress = at_rest.labels["stress"] * find_stress_factor(
        READER.units.stress, READER.units.stress_sign
    )
    assert np.isclose(difference / volume, np.sum(stress * strain), rtol=0.02)


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


def test_a_loop_that_did_not_converge_is_bad():
    (frame,) = read_frames(RUNS / "unconverged.out.gz")
    assert frame == BadFrame(0, "the self-consistency loop did not converge")


def test_an_output_that_was_cut_loses_its_last_evaluation(run):
    path = run("md")
    text = path.read_text()
    path.write_text(text[: text.rindex("STRESS| Analytical")])
    *frames, last = read_frames(path)
    assert [type(frame) for frame in frames] == [Frame, Frame]
    assert last == BadFrame(2, "truncated: the output ends before the program did")


def test_a_file_without_energies_is_bad(run):
    path = run("md")
    path.write_text("nothing\n")
    (frame,) = read_frames(path)
    assert "holds no energy" in frame.reason


def test_a_second_run_in_one_file_does_not_inherit_the_failure_of_the_first(run):
    path = run("md")
    text = path.read_text()
    failed = text[: text.index("ENERGY| Total")] + " *** WARNING :: SCF run NOT converged ***\n"
    path.write_text(failed + text)
    assert all(isinstance(frame, Frame) for frame in read_frames(path))
    path.write_text(text + failed)
    assert all(isinstance(frame, Frame) for frame in read_frames(path))
    path.write_text(text[: text.rindex("STRESS| Analytical")] + failed)
    assert "truncated" in read_frames(path)[2].reason


@pytest.mark.parametrize(
    ("name", "lost", "reasons"),
    [
        ("md", ["md-pos-1.xyz"], ["", "positions are unknown", "positions are unknown"]),
        ("md", ["md.inp", "md-pos-1.xyz"], ["no input md.inp", "positions", "positions"]),
        ("md", ["md.inp"], ["the cell is unknown"] * 3),
        ("npt", ["npt-1.cell"], ["", "the cell is unknown", "the cell is unknown"]),
        ("geo_opt", ["geo_opt.inp"], ["", "", ""]),
        ("cell_opt", ["cell_opt.inp"], ["", "", ""]),
    ],
)
def test_what_is_neither_printed_nor_beside_the_output_is_never_guessed(run, name, lost, reasons):
    path = run(name)
    for file_name in lost:
        path.with_name(file_name).unlink()
    for frame, reason in zip(read_frames(path), reasons, strict=True):
        if reason:
            assert isinstance(frame, BadFrame)
            assert reason in frame.reason
        else:
            assert isinstance(frame, Frame), frame


def test_snapshots_of_an_earlier_run_are_passed_over(run):
    path = run("md")
    snapshots = path.with_name("md-pos-1.xyz")
    earlier = snapshots.read_text().replace("E =       -17", "E =       -16")
    expected = read_frames(path)
    snapshots.write_text(earlier + snapshots.read_text())
    for frame, reference in zip(read_frames(path), expected, strict=True):
        assert np.array_equal(frame.positions, reference.positions)


def test_an_input_of_other_elements_is_noticed(run):
    path = run("md")
    path.with_name("md-pos-1.xyz").unlink()
    input_file = path.with_name("md.inp")
    input_file.write_text(
        input_file.read_text().replace("      O 0.0 0.0 0.0", "      S 0.0 0.0 0.0")
    )
    assert "names other elements than the input" in read_frames(path)[0].reason


def test_newer_and_older_layouts_give_the_same_numbers(run):
    path = run("md")
    expected = read_frames(path)
    text = path.read_text()
    newer = text.replace("ATOMIC FORCES in [a.u.]", "FORCES| Atomic forces [hartree/bohr]")
    newer = newer.replace("SUM OF ATOMIC FORCES", "FORCES| Sum").replace(
        "energy [a.u.]:", "energy [hartree]"
    )
    row = r"^ +(\d+) +\d +[OH] +(\S+) +(\S+) +(\S+)$"
    newer = re.sub(row, r" FORCES| \1 \2 \3 \4 0.5", newer, flags=re.MULTILINE)
    newer = newer.replace("# Atom   Kind   Element          X", "FORCES|   Atom     x")
    older = text.replace("STRESS| Analytical stress tensor", "STRESS TENSOR").replace(
        " STRESS|", " "
    )
    older = older.replace("energy [a.u.]:", "energy (a.u.):")
    for changed in (newer, older):
        assert changed != text
        path.write_text(changed)
        for frame, reference in zip(read_frames(path), expected, strict=True):
            assert frame.labels.keys() == {"energy", "forces", "stress"}
            for name, value in reference.labels.items():
                assert np.array_equal(frame.labels[name], value), name


def test_stress_in_bar_is_brought_to_gpa(run):
    path = run("md")
    expected = read_frames(path)[0].labels["stress"] / 10_000
    path.write_text(path.read_text().replace("stress tensor [GPa]", "stress tensor [bar]"))
    assert np.allclose(read_frames(path)[0].labels["stress"], expected, rtol=1e-12)
    path.write_text(path.read_text().replace("stress tensor [bar]", "stress tensor [atm]"))
    assert "unknown unit of stress 'atm'" in read_frames(path)[0].reason


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
        ({"coordinates": ""}, "holds no coordinates"),
        ({"coordinates": "Qq 0 0 0"}, "'Q' is not a chemical element"),
        (
            {"rest": "&END\n&END\n&EXT_RESTART\n&END\n&A\n&B"},
            "that of a restart file (&EXT_RESTART)",
        ),
    ],
)
def test_inputs_that_are_not_understood(tmp_path, changes, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        read_structure(write_input(tmp_path / "a.inp", **changes))


def test_no_keys_are_taken(run):
    with pytest.raises(ValueError, match="names its labels itself; remove `keys`"):
        open_frames(run("md"), READER, {"energy": "E"})
    assert isinstance(next(read(RUNS / "md.out.gz", {})), Frame)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("name", ["md", "geo_opt", "npt"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("-17.1", "-17.1x"),
        ("-17.1", "-17 .1"),
        (" ENERGY| Total FORCE_EVAL", " ENERQY| Total FORC_EVAL"),
        (" ENERGY|.*\n", ""),
    ],
)
def test_what_belongs_to_a_damaged_energy_never_reaches_another(run, name, number, old, new):
    path = run(name)
    expected = read_frames(path)
    parts = re.split(r"(?= ENERGY\| Total)", path.read_text())
    parts[number + 1] = re.sub(
        old.replace(".1", r"\.\d").replace("|", r"\|"), new, parts[number + 1], count=1
    )
    path.write_text("".join(parts))
    frames = read_frames(path)
    assert len(frames) == 3
    assert isinstance(frames[number], BadFrame)
    assert "ENERGY" in frames[number].reason
    assert "line " in frames[number].reason
    for frame, whole in zip(frames, expected, strict=True):
        if isinstance(frame, Frame):
            for label, value in whole.labels.items():
                assert np.array_equal(frame.labels[label], value), label
            assert np.array_equal(frame.positions, whole.positions)


@pytest.mark.parametrize(
    ("pattern", "new", "reason"),
    [
        (r"      2      2      H .*\n", "", "the table of the forces is not whole"),
        (r"(      2      2      H .*\n)", r"\1\1", "the table of the forces is not whole"),
        (r"0\.08014287", "0_08014287", "is no number"),
        (r" STRESS\|      y   .*\n", "", "the rows x, y and z of the stress do not follow"),
        (r" STRESS\|      y  ", " STRESS|      y 1", "the rows x, y and z of the stress"),
        (r" SUM OF ATOMIC", " SUN OF ATOMIC", "the table of the forces is not whole"),
    ],
)
def test_a_damaged_table(run, pattern, new, reason):
    path = run("md")
    text = re.sub(pattern, new, path.read_text(), count=1)
    path.write_text(text)
    first, *others = read_frames(path)
    assert reason in first.reason
    assert "line " in first.reason
    assert all(isinstance(frame, Frame) for frame in others)


def test_empty_and_damaged_lines_beside_the_output(run):
    path = run("npt")
    expected = read_frames(path)[1].cell
    cells = path.with_name("npt-1.cell")
    text = cells.read_text()
    cells.write_text(text.replace("\n", "\n\n"))
    assert np.array_equal(read_frames(path)[1].cell, expected)
    cells.write_text(text.replace("5.0280508303", "5.9280508303"))
    assert "npt-1.cell: '1       0.500        5.928" in read_frames(path)[1].reason
    cells.write_text(text)
    snapshots = path.with_name("npt-pos-1.xyz")
    snapshots.write_text("0\n i = 0, time = 0.0, E = -17.1110612\n" + snapshots.read_text())
    assert all(isinstance(frame, Frame) for frame in read_frames(path))


def test_an_input_with_infinity(tmp_path):
    with pytest.raises(ValueError, match="a number of the structure is not finite"):
        read_structure(write_input(tmp_path / "a.inp", cell="ABC inf 4 4"))
