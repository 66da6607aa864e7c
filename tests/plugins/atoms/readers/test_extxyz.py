"""Extended XYZ. The oracle is ASE's reader: all numbers must be equal to the last bit."""

import gzip
import tracemalloc

import ase.io
import numpy as np
import pytest
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_atoms.readers import BadFrame, Frame, extxyz
from pipeline_atoms.readers.catalogue import open_frames
from pipeline_atoms.readers.extxyz import READER, iterate_values, read
from pipeline_core.data import files
from plugins.atoms.readers.conftest import assert_same
from real_data import find

TWO_ATOMS = """\
2
Lattice="4 0 0 0 5 0 0 0 6" Properties=species:S:1:pos:R:3:REF_forces:R:3 REF_energy=-1.5{more}
H 0 0 0 0.1 0.2 0.3
He 1 2 3 -0.1 -0.2 -0.3
"""


def read_one(tmp_path, text, keys=None):
    path = tmp_path / "a.xyz"
    path.write_text(text)
    (frame,) = open_frames(path, READER, keys or {})
    return frame


def assert_same_with_info(frame, atoms):
    assert_same(frame, atoms)
    plain = {
        k: v for k, v in atoms.info.items() if isinstance(v, str | bool | np.bool_ | np.number)
    }
    assert {key: frame.info[key] for key in plain} == plain


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n_frames"),
    [
        ("mattersim_benchmarks/mptrj-random-1k.xyz", 1000),
        ("mattersim_benchmarks/high_level_water.xyz", 10),
        ("botnet/dataset_3BPA/train_300K.xyz", 500),  # `_JSON` values
        ("botnet/dataset_3BPA/iso_atoms.xyz", 4),  # no cell
        ("botnet/dataset_acac/test_H_transfer.xyz", None),  # no forces
    ],
)
def test_real_files_read_as_by_ase(name, n_frames):
    path = find(name)
    frames = list(read(path, {}))
    images = ase.io.read(path, ":")
    assert len(frames) == len(images)
    assert n_frames in (None, len(frames))
    for index, (frame, atoms) in enumerate(zip(frames, images, strict=True)):
        assert frame.index == index
        assert_same_with_info(frame, atoms)


text = st.text(st.sampled_from("ab Z-_.'{}[]\"\\=,1"), min_size=1, max_size=8).filter(
    lambda value: value.strip() == value
)
number = st.floats(-1e6, 1e6)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    symbols=st.lists(st.sampled_from(["H", "Fe", "O"]), min_size=1, max_size=4),
    pbc=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    info=st.dictionaries(
        st.sampled_from(["name", "step", "flag", "T", "note-1"]),
        st.one_of(text, number, st.booleans(), st.integers(-9, 9)),
    ),
    energy=number,
    seed=st.integers(0, 99),
)
def test_whatever_ase_writes_reads_as_by_ase(tmp_path_factory, symbols, pbc, info, energy, seed):
    rng = np.random.default_rng(seed)
    atoms = Atoms(
        symbols, rng.normal(size=(len(symbols), 3)), cell=rng.normal(size=(3, 3)), pbc=pbc
    )
    atoms.info.update(info)
    forces, stress = rng.normal(size=(len(symbols), 3)), rng.normal(size=6)
    magmoms = rng.normal(size=len(symbols))
    atoms.calc = SinglePointCalculator(
        atoms, energy=energy, forces=forces, stress=stress, magmoms=magmoms
    )
    path = tmp_path_factory.mktemp("written") / "a.xyz"
    ase.io.write(path, [atoms, atoms], format="extxyz")
    for frame, image in zip(read(path, {}), ase.io.read(path, ":", format="extxyz"), strict=True):
        assert_same_with_info(frame, image)


def test_labels_under_declared_names(tmp_path):
    voigt = ' REF_stress="1 2 3 4 5 6" energy=99'
    keys = {"energy": "REF_energy", "forces": "REF_forces", "stress": "REF_stress"}
    frame = read_one(tmp_path, TWO_ATOMS.format(more=voigt), keys)
    assert frame.labels["energy"] == -1.5
    assert np.array_equal(frame.labels["forces"], [[0.1, 0.2, 0.3], [-0.1, -0.2, -0.3]])
    assert np.array_equal(frame.labels["stress"], [[1, 6, 5], [6, 2, 4], [5, 4, 3]])
    assert frame.info == {"energy": 99}
    assert np.array_equal(frame.cell, np.diag([4.0, 5.0, 6.0]))
    assert frame.pbc.all()


def test_declared_names_are_read_and_no_others(tmp_path):
    keys = {"energy": "REF_energy", "forces": "dft_forces"}  # which is not there
    frame = read_one(tmp_path, TWO_ATOMS.format(more=' stress=1 virial="1 2 3"'), keys)
    assert frame.labels.keys() == {"energy"}
    (result,) = iterate_values(tmp_path / "a.xyz")
    shapes = {name: array.shape for name, array in result.items()}
    assert shapes == {"REF_energy": (), "REF_forces": (2, 3), "stress": (), "virial": (3,)}
    frame = read_one(tmp_path, "1\n i = 3, time = 0.5, E = -17.1\nO 1 2 3 0.5\n\n")
    assert frame.labels == {}
    assert np.array_equal(frame.positions, [[1.0, 2.0, 3.0]])
    assert not frame.pbc.any()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("H 0", "Hx 0", "'Hx' is not a chemical element"),
        ("He 1 2 3", "He 1 2", "line of atom 2 has 6 columns, the first line has 7"),
        (":R:3:REF_forces:R:3", ":R:3", "lines have 7 columns, expected 4"),
        ("0.3", "0.3x", "forces is not numeric"),
        ("0.3", "nan", "NaN in forces"),
        ("-1.5", "high", "energy is not numeric"),
        ("0 0 6", "0 6", "Lattice has 8 numbers, expected 9"),
        ("0 0 6", "0 0 0", "is periodic, but its cell has no volume"),
        ("pos:R", "place:R", "Properties lacks species (or Z) or pos"),
        ("pos:R:3", "pos:R", "is not a list of name:type:columns"),
        (
            "2\n",
            "0\n",
            "0 atoms announced in line 1, but line 3 does not begin another frame: 'H 0",
        ),
        ("2\n", "1\n", "1 atoms announced in line 1, but line 4 does not begin another frame: 'He"),
        ("H 0 0 0", "H 0 0 0 9 9 9\nH 0 0 0", "but line 5 does not begin another frame: 'He"),
        ("2\n", "two\n", "expected the number of atoms, found 'two'"),
        ("2\n", "3\n", "truncated: 3 atoms announced in line 1, 2 lines found"),
        ("-0.3\n", "", "truncated: line of atom 2 has 6 columns, the first line has 7"),
        (" REF_energy", " stress={1 2 REF_energy", "comment line cannot be parsed"),
        ("-1.5", "-1_5", "energy is not numeric"),
        ("-1.5", "-\u0661.5", "energy is not numeric"),
        ("4 0 0", "4_0 0 0", "an underscore"),
        ("He 1 2", "He \uff11 2", "digits of another script"),
        (" REF_energy", " REF_energy=-2.5 REF_energy", "gives REF_energy twice: '-2.5' and '-1.5'"),
        ("pos:R:3:REF_forces:R:3", "pos:R:3:pos:R:3", "names pos twice; rename one"),
    ],
)
def test_a_damaged_frame_says_what_is_wrong(tmp_path, old, new, reason):
    text = TWO_ATOMS.format(more="").replace(old, new, 1)
    path = tmp_path / "a.xyz"
    path.write_text(text)
    first = next(open_frames(path, READER, {"energy": "REF_energy", "forces": "REF_forces"}))
    assert isinstance(first, BadFrame)
    assert reason in first.reason


@pytest.mark.parametrize("end", ["3", "3\n", "3\nthe comment\n"])
def test_a_file_may_end_within_the_head_of_a_frame(tmp_path, end):
    path = tmp_path / "a.xyz"
    path.write_text(TWO_ATOMS.format(more="") + end)
    good, bad = read(path, {})
    assert isinstance(good, Frame)
    assert bad == BadFrame(1, "truncated: 3 atoms announced in line 5, 0 lines found")


@pytest.mark.parametrize("n_lines_lost", [1, 2, 3])
def test_reading_goes_on_behind_a_frame_that_was_cut_short(tmp_path, n_lines_lost):
    block = TWO_ATOMS.format(more="")
    cut = "".join(block.splitlines(keepends=True)[:-n_lines_lost])
    path = tmp_path / "a.xyz"
    path.write_text(block + cut + block + "garbage\n" + block)
    frames = list(read(path, {"energy": "REF_energy"}))
    assert [isinstance(frame, Frame) for frame in frames] == [True, False, False, True]
    assert [frame.index for frame in frames] == [0, 1, 2, 3]
    assert "truncated" in frames[1].reason
    assert "does not begin another frame: 'garbage'" in frames[2].reason  # or a damaged atom of it


@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("damage", ["doubled", "lost"])
def test_labels_of_one_frame_never_reach_another(tmp_path, place, damage):
    blocks = [TWO_ATOMS.format(more="").replace("-1.5", f"-{k}.5") for k in range(4)]
    lines = "".join(blocks).splitlines(keepends=True)
    lines[place : place + 1] = [lines[place]] * (2 if damage == "doubled" else 0)
    path = tmp_path / "a.xyz"
    path.write_text("".join(lines))
    frames = list(read(path, {"energy": "REF_energy"}))
    whole = [frame for frame in frames if isinstance(frame, Frame)]
    assert len(whole) < len(frames)
    assert [frame.labels["energy"] for frame in whole[-2:]] == [-2.5, -3.5]
    for frame in whole:
        assert frame.positions.tolist() == [[0, 0, 0], [1, 2, 3]]
        assert frame.atomic_numbers.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("last", "is_good"),
    [("-0.3", True), ("-0.30", False), ("-0.", False), ("-0", False), ("-0.3 ", True)],
)
def test_a_file_may_end_within_its_last_number(tmp_path, last, is_good):
    text = TWO_ATOMS.format(more="").replace("-0.3\n", last)
    frame = read_one(tmp_path, text, {"forces": "REF_forces"})
    assert isinstance(frame, Frame) == is_good
    assert is_good or "truncated: the file ends without an end of line" in frame.reason
    assert isinstance(read_one(tmp_path, text + "\n", {"forces": "REF_forces"}), Frame)


@pytest.mark.parametrize(
    ("key", "wrong"), [("Lattice", "Lattjce"), ("Properties", "Poperties"), ("Lattice", "LLattice")]
)
def test_a_misspelled_key_of_the_structure(tmp_path, key, wrong):
    frame = read_one(tmp_path, TWO_ATOMS.format(more="").replace(key, wrong))
    assert isinstance(frame, BadFrame)
    assert frame.reason == f"the comment line has {wrong}, did you mean {key}?"


def test_the_cost_of_a_damaged_file_grows_with_its_length(tmp_path, monkeypatch):
    """Every line is read at most twice."""
    n_read, read_line = 0, extxyz._Lines.read

    def count(lines):
        nonlocal n_read
        n_read += 1
        return read_line(lines)

    monkeypatch.setattr(extxyz._Lines, "read", count)
    path = tmp_path / "a.xyz"
    for text in ("999999999\n", "9\nx=1\nH 0 0 0\n", "9\n9\nH 0 0 0\n", "99999\nx=1\nH\nH 0\n"):
        path.write_text(text * 3000)
        n_read = 0
        assert not any(isinstance(frame, Frame) for frame in read(path, {}))
        assert n_read < 3 * text.count("\n") * 3000 + 10


@pytest.mark.slow
def test_files_that_expand_without_end(tmp_path):
    path = tmp_path / "a.xyz.gz"
    path.write_bytes(gzip.compress((b"1\n" + b" " * 100_000 + b"\nH 0 0 0\n") * 100))
    with pytest.raises(ValueError, match=r"a\.xyz\.gz: expands to more than 200 times its size"):
        list(open_frames(path, READER, {}))
    path = tmp_path / "a.xyz"
    path.write_bytes(bytes(1 << 25))
    with pytest.raises(ValueError, match=r"a\.xyz: line 1 has over .* characters"):
        list(open_frames(path, READER, {}))


@pytest.mark.parametrize(("mark", "end"), [("\ufeff", "\n"), ("", "\r\n"), ("\ufeff", "\r\n")])
def test_files_of_windows_are_read_like_others(tmp_path, mark, end):
    text = TWO_ATOMS.format(more="")
    path = tmp_path / "a.xyz"
    path.write_bytes((mark + 2 * text.replace("\n", end)).encode())
    for frame in read(path, {"energy": "REF_energy"}):
        assert frame.labels["energy"] == -1.5
        assert frame.positions.tolist() == [[0, 0, 0], [1, 2, 3]]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_truncated_file_loses_its_last_frame_only(tmp_path, compressed):
    source = find("mattersim_benchmarks/high_level_water.xyz")
    path = tmp_path / ("a.xyz.gz" if compressed else "a.xyz")
    content = source.read_bytes()
    content = gzip.compress(content, mtime=0) if compressed else content
    path.write_bytes(content)
    whole = list(read(source, {}))
    for frame, other in zip(read(path, {}), whole, strict=True):
        assert np.array_equal(frame.labels["forces"], other.labels["forces"])
    path.write_bytes(content[: len(content) * 87 // 100])
    *frames, last = open_frames(path, READER, {})
    assert len(frames) == 8
    assert all(isinstance(frame, Frame) for frame in frames)
    assert last.index == len(frames)
    assert "truncated" in last.reason


@pytest.mark.slow
def test_a_long_file_is_never_held_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_BUFFER", 1 << 14)
    path = tmp_path / "long.xyz"
    path.write_text(("100\nProperties=species:S:1:pos:R:3\n" + "Fe 0.125 0.25 0.5\n" * 100) * 500)
    tracemalloc.start()
    try:
        n_frames = sum(1 for _ in read(path, {}))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert n_frames == 500
    assert peak < path.stat().st_size / 4
