"""VASP: a real run (LiCl, one step, spin-polarised, with D3), and longer ones made from its text.

Oracles: pymatgen and ASE reading the same files.
"""

import gzip
import re
import shutil

import ase.io
import numpy as np
import pytest
from ase.stress import voigt_6_to_full_3x3_stress
from pymatgen.io.vasp.outputs import Outcar, Vasprun

from pipeline_atoms.readers import BadFrame, Frame
from pipeline_atoms.readers.catalogue import open_frames
from pipeline_atoms.readers.vasp import READER, iterate_values
from pipeline_core.units import find_stress_factor
from real_data import find


def read_frames(path, **keys):
    return list(open_frames(path, READER, keys))


@pytest.fixture(scope="session")
def xml():
    """Text of the vasprun.xml, without the bulk that no reader here looks at."""
    text = gzip.decompress(find("vasp_licl/vasprun.xml.gz").read_bytes()).decode("latin-1")
    return re.sub("<eigenvalues>.*(?=</calculation>)", "", text, flags=re.DOTALL)


@pytest.fixture(scope="session")
def outcar():
    return find("vasp_licl/OUTCAR").read_text()


def lengthen_xml(xml):
    """Make three steps out of one, with other free energies and smearing corrections."""
    head, rest = xml.split(" <calculation>", 1)
    step, tail = rest.split("</calculation>", 1)
    steps = []
    for k in range(3):
        text = step.replace("-153.01235880", f"-153.{k}1235880").replace(
            "0.58283549", f"0.5828{k}549"
        )
        electronic, ionic = text.rsplit("</scstep>", 1)
        before, after = electronic.rsplit('name="e_0_energy">   -146.49', 1)
        steps.append(f'{before}name="e_0_energy">   -146.{k}9{after}</scstep>{ionic}')
    return head + "".join(f" <calculation>{text}</calculation>\n" for text in steps) + tail


def lengthen_outcar(outcar):
    """Make three steps out of one, with other energies and moments."""
    start = outcar.index("--------------------------------------- Iteration      1(   1)")
    head, step = outcar[:start], outcar[start:]
    texts = []
    for k in range(3):
        text = step.replace("Iteration      1(", f"Iteration      {k + 1}(")
        text = text.replace("-153.01235880", f"-153.{k}1235880").replace(
            "TOTEN  =      -153.0", f"TOTEN  =      -153.{k}"
        )
        texts.append(re.sub(r"^( +7 .*)  -0.000$", rf"\1   {k}.250", text, flags=re.MULTILINE))
    return head + "".join(texts)


@pytest.fixture
def folder(tmp_path, xml, outcar):
    (tmp_path / "vasprun.xml").write_text(lengthen_xml(xml), encoding="latin-1")
    (tmp_path / "OUTCAR").write_text(lengthen_outcar(outcar))
    return tmp_path


def assert_as_ase(frame, atoms, rtol=1e-12):
    assert isinstance(frame, Frame), frame
    results = atoms.calc.results
    assert np.array_equal(frame.atomic_numbers, atoms.numbers)
    assert np.allclose(frame.positions, atoms.positions, rtol=0, atol=1e-12)
    assert np.array_equal(frame.cell, atoms.cell)
    assert frame.pbc.all()
    assert np.isclose(frame.labels["energy"], results["free_energy"], rtol=rtol, atol=0)
    assert np.array_equal(frame.labels["forces"], results["forces"])
    stress = frame.labels["stress"] * find_stress_factor(
        READER.units.stress, READER.units.stress_sign
    )
    expected = voigt_6_to_full_3x3_stress(results["stress"])
    assert np.allclose(stress, expected, rtol=1e-6, atol=1e-9)  # the file is symmetric to 1e-7


def test_the_real_run_is_what_pymatgen_reads(tmp_path, xml):
    path = tmp_path / "vasprun.xml"
    path.write_text(xml, encoding="latin-1")
    run = Vasprun(path, parse_dos=False, parse_eigen=False, parse_potcar_file=False)
    (frame,) = read_frames(path)
    (step,) = run.ionic_steps
    assert np.array_equal(frame.atomic_numbers, step["structure"].atomic_numbers)
    assert np.allclose(frame.positions, step["structure"].cart_coords, rtol=0, atol=1e-12)
    assert np.array_equal(frame.cell, step["structure"].lattice.matrix)
    assert np.array_equal(frame.labels["forces"], step["forces"])
    assert np.array_equal(frame.labels["stress"], step["stress"])
    assert frame.labels["energy"] == step["e_fr_energy"] == -153.0123588  # with D3
    assert read_frames(path, energy="e_0_energy")[0].labels["energy"] == run.final_energy
    assert frame.info == {"folder": tmp_path.name}


@pytest.mark.slow
def test_the_real_run_has_the_moments_of_its_outcar():
    expected = [site["tot"] for site in Outcar(find("vasp_licl/OUTCAR")).magnetization]
    for name in ("vasprun.xml.gz", "OUTCAR"):
        (frame,) = read_frames(find(f"vasp_licl/{name}"))
        assert np.array_equal(frame.labels["magmoms"], expected)


@pytest.mark.parametrize("file_format", ["vasp-xml", "vasp-out"])
def test_longer_runs_are_what_ase_reads(folder, file_format):
    path = folder / ("vasprun.xml" if file_format == "vasp-xml" else "OUTCAR")
    images = ase.io.read(path, ":", format=file_format)
    frames = read_frames(path)
    for frame, atoms in zip(frames, images, strict=True):
        assert_as_ase(frame, atoms)
    assert len({float(frame.labels["energy"]) for frame in frames}) == 3
    for frame, atoms in zip(read_frames(path, energy="e_0_energy"), images, strict=True):
        assert np.isclose(frame.labels["energy"], atoms.get_potential_energy(), rtol=1e-12)
    assert {"e_fr_energy", "e_0_energy", "e_wo_entrp"} <= next(iter(iterate_values(path))).keys()


def edit(path, old, new, count=-1):
    """Replace text of a file, where it has to be."""
    text = path.read_text(encoding="latin-1")
    assert old in text
    path.write_text(text.replace(old, new, count), encoding="latin-1")


def test_moments_belong_to_their_steps(folder):
    images = ase.io.read(folder / "OUTCAR", ":", format="vasp-out")
    assert [atoms.get_magnetic_moments()[6] for atoms in images] == [0.25, 1.25, 2.25]
    for name in ("OUTCAR", "vasprun.xml"):
        for frame, atoms in zip(read_frames(folder / name), images, strict=True):
            assert np.array_equal(frame.labels["magmoms"], atoms.get_magnetic_moments())
    edit(folder / "OUTCAR", " magnetization (x)", " magnetization (y)\n magnetization (x)", 1)
    assert "magmoms" not in read_frames(folder / "OUTCAR")[0].labels  # not collinear
    (folder / "OUTCAR").unlink()
    assert all("magmoms" not in frame.labels for frame in read_frames(folder / "vasprun.xml"))


def test_an_outcar_that_does_not_fit(folder):
    path = folder / "OUTCAR"
    edit(path, "-153.11235880", "-152.11235880")
    with pytest.raises(ValueError, match=r"step 1 has another energy in .*OUTCAR.*another run"):
        read_frames(folder / "vasprun.xml")
    edit(path, "0.222582      0.169662", "0.222582 *************", 1)  # beyond its column
    first, *others = read_frames(path)
    assert first == BadFrame(0, "NaN in forces")
    assert all(isinstance(frame, Frame) for frame in others)
    edit(path, "TITEL", "-----")
    assert "does not name the elements; read the vasprun.xml" in read_frames(path)[0].reason


def test_the_work_of_an_external_pressure_is_subtracted(folder):
    path = folder / "vasprun.xml"
    (folder / "OUTCAR").unlink()
    edit(path, '"PSTRESS">      0.00000000', '"PSTRESS">    100.00000000')
    frames = read_frames(path)
    for frame, atoms in zip(frames, ase.io.read(path, ":", format="vasp-xml"), strict=True):
        assert_as_ase(frame, atoms, rtol=1e-6)  # VASP and ASE have an older electron volt
    assert frames[0].labels["energy"] < -153.0123588 - 40  # 100 kbar times 693 Å³ are 43 eV


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("vasprun.xml", 'name="NELM">   400', 'name="NELM">    17'),
        ("OUTCAR", "NELM   =    400", "NELM   =     17"),
        ("OUTCAR", "aborting loop because EDIFF is reached", "aborting loop EDIFF was not reached"),
    ],
)
def test_steps_that_did_not_converge_are_bad(folder, name, old, new):
    edit(folder / name, old, new)
    frames = read_frames(folder / name)
    assert len(frames) == 3
    assert all("electronic steps did not converge within NELM" in frame.reason for frame in frames)


@pytest.mark.parametrize(
    ("name", "end"), [("vasprun.xml", '<varray name="stress"'), ("OUTCAR", "FREE ENERGIE OF")]
)
def test_a_run_that_was_cut_loses_its_last_step(folder, name, end):
    path = folder / name
    text = path.read_text(encoding="latin-1")
    path.write_text(text[: text.rindex(end)], encoding="latin-1")
    *frames, last = read_frames(path)
    assert [type(frame) for frame in frames] == [Frame, Frame]
    assert last.index == 2
    assert "truncated" in last.reason


@pytest.mark.parametrize(("written", "z"), [("X ", 54), ("r ", 40)])
def test_elements_that_vasp_garbles(folder, written, z):
    edit(folder / "vasprun.xml", "<c>Cl</c>", f"<c>{written}</c>")
    assert read_frames(folder / "vasprun.xml")[0].atomic_numbers[-1] == z  # Xe, Zr: pymatgen


def test_compressed_files_find_each_other(folder):
    for name in ("vasprun.xml", "OUTCAR"):
        with (folder / name).open("rb") as source, gzip.open(folder / f"{name}.gz", "wb") as target:
            shutil.copyfileobj(source, target)
        (folder / name).unlink()
    frames = read_frames(folder / "vasprun.xml.gz")
    assert [frame.labels["magmoms"][6] for frame in frames] == [0.25, 1.25, 2.25]


@pytest.mark.parametrize(
    ("pattern", "new"),
    [
        (r"(TOTEN  =      -)153\.", r"\g<1>1%53."),
        (r"(TOTEN  =      -153\.\d+)", r"\1E-05"),
        (r"(  in kB     -18\.49620)", r"\1x"),
        (r"(?<=  in kB     -18\.49620)    ", "   -1%3.01 "),
        (r"(TOTAL-FORCE \(eV/Angst\)\n.*\n).*\n", r"\1"),
        (r"(TOTAL-FORCE \(eV/Angst\)\n.*\n)(.*\n)", r"\1\2\2"),
        (r"(TOTAL-FORCE \(eV/Angst\)\n.*\n.*)-", r"\1-1%"),
        (r"(magnetization \(x\)\n\n.*\n.*\n).*\n", r"\1"),
        (r"(direct lattice vectors +reciprocal lattice vectors\n +4\.98)9", r"\1x"),
    ],
)
def test_nothing_in_a_number_or_table_of_an_outcar_is_skipped(tmp_path, outcar, pattern, new):
    start = outcar.index("Iteration      1(   1)")
    step = re.sub(pattern, new, outcar[start:])
    assert step != outcar[start:]
    path = tmp_path / "OUTCAR"
    path.write_text(outcar[:start] + step)
    (frame,) = read_frames(path)
    assert isinstance(frame, BadFrame)
    assert "cannot be read at or below the line" in frame.reason


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("<rc><c>Li</c><c>   1</c></rc>", "<rc/>", "the list of the atoms cannot be read"),
        ("<rc><c>Li</c><c>   1</c></rc>", "", "the lists of atoms and of their types do not agree"),
        ("<c>Li</c><c>   1</c>", "<c>Be</c><c>   1</c>", "the lists of atoms and of their types"),
        (r'name="NELM">  *\d+<', 'name="NELM">1e999<', "is not a number"),
        (r'name="NELM">  *\d+<', 'name="NELM">-3<', "NELM is -3, not a number of steps"),
    ],
)
def test_a_damaged_header_of_a_vasprun(tmp_path, xml, old, new, reason):
    path = tmp_path / "vasprun.xml"
    text = re.sub(old, new, xml, count=0 if "NELM" in old else 1)
    assert text != xml
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=rf"vasprun\.xml: .*{reason}"):
        read_frames(path)


BOMB = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))


@pytest.mark.parametrize(
    "entities",
    [f'<!ENTITY a0 "aaaaaaaaaa">{BOMB}', '<!ENTITY a9 SYSTEM "secret.txt">'],
    ids=["bomb", "file"],
)
def test_entities_of_xml_neither_fill_the_memory_nor_read_a_file(tmp_path, entities):
    (tmp_path / "secret.txt").write_text("secret")
    path = tmp_path / "vasprun.xml"
    path.write_text(f"<!DOCTYPE modeling [{entities}]><modeling><i>&a9;</i></modeling>")
    (frame,) = read_frames(path)
    assert isinstance(frame, BadFrame)
    assert "truncated or damaged XML" in frame.reason
    assert "secret" not in frame.reason
