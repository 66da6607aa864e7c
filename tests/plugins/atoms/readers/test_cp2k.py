"""CP2K outputs.

Oracles: pymatgen's parser for what an output prints, ASE's for restart files, CP2K's own pressure
and finite strain for the sign and the unit of the stress.
"""

import re

import numpy as np
import pytest
from ase.io.cp2k import read_cp2k_restart
from pymatgen.io.cp2k.outputs import Cp2kOutput

from pipeline_atoms.readers import Frame
from pipeline_atoms.readers.catalogue import open_frames
from pipeline_atoms.readers.cp2k import READER, read
from pipeline_core.units import HARTREE, find_factor, find_stress_factor
from plugins.atoms.readers.cp2k_files import HFO2, RUNS, read_frames, unpack


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
def test_the_structures_are_those_of_the_input_and_of_the_restart_file(name, cell_error):
    first, _, last = read_frames(RUNS / f"{name}.out.gz")
    assert first.atomic_numbers.tolist() == [8, 1, 1]
    assert np.allclose(first.positions, [[0, 0, 0], [0, 0.757, 0.587], [0, -0.757, 0.587]])
    assert np.array_equal(first.cell, np.diag([5.0, 5.0, 5.2]))
    with (RUNS / f"{name}-1.restart").open() as file:
        atoms = read_cp2k_restart(file)
    assert np.array_equal(last.atomic_numbers, atoms.numbers)
    assert np.allclose(last.positions, atoms.positions, rtol=0, atol=6e-11)
    assert np.allclose(last.cell, atoms.cell, rtol=0, atol=cell_error)
    assert last.pbc.all()


def test_energies_of_dynamics_are_the_potential_energies_of_the_run():
    frames = read_frames(RUNS / "md.out.gz")
    potential = np.loadtxt(RUNS / "md-1.ener")[:, 4]
    assert np.allclose([f.labels["energy"] for f in frames], potential, rtol=0, atol=6e-10)
    assert frames[0].info == {"folder": "cp2k_runs", "project": "md", "run_type": "MD"}


def test_the_trace_of_the_stress_is_the_pressure_without_its_kinetic_part(cp2k_run):
    text = cp2k_run("md").read_text()
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


def test_newer_and_older_layouts_give_the_same_numbers(cp2k_run):
    path = cp2k_run("md")
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


def test_stress_in_bar_is_brought_to_gpa(cp2k_run):
    path = cp2k_run("md")
    expected = read_frames(path)[0].labels["stress"] / 10_000
    path.write_text(path.read_text().replace("stress tensor [GPa]", "stress tensor [bar]"))
    assert np.allclose(read_frames(path)[0].labels["stress"], expected, rtol=1e-12)
    path.write_text(path.read_text().replace("stress tensor [bar]", "stress tensor [atm]"))
    assert "unknown unit of stress 'atm'" in read_frames(path)[0].reason


def test_no_keys_are_taken(cp2k_run):
    with pytest.raises(ValueError, match="names its labels itself; remove `keys`"):
        open_frames(cp2k_run("md"), READER, {"energy": "E"})
    assert isinstance(next(read(RUNS / "md.out.gz", {})), Frame)
