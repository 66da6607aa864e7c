"""FitSNAP's JSON.

Oracles: counts published with the data. Sign and unit of the stress show in differences of energy:
`plugins/atoms/importing/test_real_data.py`.
"""

import io
import json
import tarfile

import numpy as np
import pytest

from pipeline_atoms.readers import BadFrame, Frame
from pipeline_atoms.readers.catalogue import open_frames
from pipeline_atoms.readers.fitsnap import READER, read
from real_data import find
from tiers import exhaustive

DATASET = {
    "LatticeStyle": "angstrom",
    "PositionsStyle": "angstrom",
    "EnergyStyle": "electronvolt",
    "ForcesStyle": "electronvoltperangstrom",
    "StressStyle": "bar",
    "AtomTypeStyle": "chemicalsymbol",
    "Data": [
        {
            "NumAtoms": 2,
            "Lattice": [[4, 0, 0], [1, 4, 0], [0, 0, 4]],
            "Positions": [[0, 0, 0], [2, 2, 2]],
            "AtomTypes": ["Fe", "O"],
            "Energy": -5.5,
            "Forces": [[0, 0, 1], [0, 0, -1]],
            "Stress": [[1, 2, 3], [2, 4, 5], [3, 5, 6]],
            "Spins": [[2.5, 0, 0, -1], [0.5, 1, 0, 0]],
        }
    ],
}


def pack(path, files, mode="w:gz"):
    with tarfile.open(path, mode) as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


def write_archive(path, **changes):
    """Write an archive with one good file, one with changed styles and one that is no data."""
    files = {
        "set/JSON/Liquid/a.json": "# comment\n" + json.dumps({"Dataset": DATASET}),
        "set/JSON/Solid/b.json": json.dumps({"Dataset": {**DATASET, **changes}}),
        "set/README.md": "no data",
        "set/JSON/Solid/._b.json": "left by macOS",
    }
    return pack(path, files)


def test_one_frame_with_its_group(tmp_path):
    first, second = open_frames(write_archive(tmp_path / "a.tar.gz"), READER, {})
    assert first.info == {"group": "Liquid", "file": "a.json"}
    assert second.info == {"group": "Solid", "file": "b.json"}
    assert (first.index, second.index) == (0, 1)
    assert first.atomic_numbers.tolist() == [26, 8]
    assert first.cell[1].tolist() == [1, 4, 0]
    assert first.labels["energy"] == -5.5
    assert np.array_equal(first.labels["stress"], DATASET["Data"][0]["Stress"])
    assert np.array_equal(first.labels["magmoms"], [2.5, 0.5])
    path = tmp_path / "Surface" / "a.json"
    path.parent.mkdir()
    path.write_text("# comment\n" + json.dumps({"Dataset": DATASET}))
    (frame,) = read(path, {})
    assert frame.info["group"] == "Surface"


def test_styles_are_brought_to_the_units_of_the_reader(tmp_path):
    changes = {"StressStyle": "kB", "EnergyStyle": "hartree", "LatticeStyle": "bohr"}
    bar, kilobar = read(write_archive(tmp_path / "a.tar.gz", **changes), {})
    assert np.allclose(kilobar.labels["stress"], 1000 * bar.labels["stress"], rtol=1e-15)
    assert np.isclose(kilobar.labels["energy"], -5.5 * 27.211386245988, rtol=1e-12)  # CODATA 2018
    assert np.allclose(kilobar.cell, bar.cell * 0.529177210903, rtol=1e-12)
    assert np.array_equal(kilobar.positions, bar.positions)


def test_a_truncated_archive_ends_with_a_bad_frame(tmp_path):
    content = find("fitsnap/Fe_Linear_NPJ2021.json.tar.gz").read_bytes()
    path = tmp_path / "a.tar.gz"
    path.write_bytes(content[:200_000])
    *frames, last = open_frames(path, READER, {})
    assert len(frames) > 10
    assert isinstance(last, BadFrame)
    assert "truncated" in last.reason
    (tmp_path / "a.tar").write_bytes(b"no archive" * 100)
    with pytest.raises(ValueError, match=r"neither a \.json file nor a tar archive"):
        list(open_frames(tmp_path / "a.tar", READER, {}))


def flip_a_bit_of_the_time(content):
    place = content.index(b"A/1.json") + 130
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(
    ("damage", "n_good", "reason"),
    [
        (flip_a_bit_of_the_time, 1, "is damaged (bad checksum); what follows is lost"),
        (lambda content: content[: content.index(b"A/2.json")], 2, "empty header"),
        (lambda content: content + content, 3, "something follows its end"),
        # A name with the same sum of bytes: the frame is not left out.
        (lambda content: content.replace(b"A/1.json", b"A/0/json"), 3, None),
    ],
)
def test_a_damaged_archive(tmp_path, damage, n_good, reason):
    text = json.dumps({"Dataset": DATASET})
    path = pack(tmp_path / "a.tar", {f"A/{number}.json": text for number in range(3)}, "w")
    content = path.read_bytes()
    path.write_bytes(damage(content))
    assert path.read_bytes() != content
    frames = list(open_frames(path, READER, {}))
    bad = [frame for frame in frames if isinstance(frame, BadFrame)]
    assert len(frames) - len(bad) == n_good
    assert reason is None or (len(bad) == 1 and reason in bad[0].reason)


def test_a_sparse_file_is_not_expanded(tmp_path):
    member = tarfile.TarInfo("a.json")
    member.pax_headers = {"GNU.sparse.size": str(1 << 50), "GNU.sparse.map": "0,0"}
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member)
    (bad,) = open_frames(tmp_path / "a.tar.gz", READER, {})
    assert "a.json has holes" in bad.reason


def change(**values):
    return {"Data": [{**DATASET["Data"][0], **values}]}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"StressStyle": "atm"}, "StressStyle is 'atm', supported are bar, kB, kbar, GPa"),
        ({"ForcesStyle": None}, "ForcesStyle is None, supported are"),
        ({"Data": [{"Energy": 1.0}]}, "not the layout of FitSNAP"),
        ({"Data": None}, "not the layout of FitSNAP"),
        (change(Energy=10**400), "Energy is not numeric"),
        (change(Forces=[[0, 0, 1], [0, 0]]), "Forces is not numeric"),
        (change(Positions={"x": 1}), "Positions is not numeric"),
        (change(Spins=["up", "down"]), "Spins is not numeric"),
        (change(Spins=3.0), "not the layout of FitSNAP"),
        (change(AtomTypes=[26, []]), "26 is not a chemical element"),
        (change(AtomTypes="FeO"), "AtomTypes is not a list"),
        (change(NumAtoms=3), "AtomTypes is not a list of NumAtoms elements"),
    ],
)
def test_a_file_that_cannot_be_used_costs_itself(tmp_path, changes, reason):
    archive = write_archive(tmp_path / "a.tar.gz", **changes)
    good, bad = open_frames(archive, READER, {})
    assert isinstance(good, Frame)
    assert bad.index == 1
    assert bad.reason.startswith("set/JSON/Solid/b.json: ")
    assert reason in bad.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "not the layout of FitSNAP"),
        ('{"Dataset": 3}', "not the layout of FitSNAP"),
        ('{"Dataset": {"Data": {}}}', "not the layout of FitSNAP"),
        (
            '{"Dataset": {"Data": [{"Energy": 1, "Energy": 2}]}}',
            "damaged JSON: the key 'Energy' is given twice",
        ),
    ],
)
def test_json_of_another_shape_is_a_bad_frame(tmp_path, text, reason):
    (tmp_path / "a.json").write_text(text)
    (bad,) = open_frames(tmp_path / "a.json", READER, {})
    assert f"a.json: {reason}" in bad.reason


@pytest.fixture(scope="module")
def iron():
    return list(open_frames(find("fitsnap/Fe_Linear_NPJ2021.json.tar.gz"), READER, {}))


@pytest.mark.slow
def test_iron_is_complete(iron):
    assert all(isinstance(frame, Frame) for frame in iron)
    assert len(iron) == 2517
    assert len({frame.info["group"] for frame in iron}) == 8
    magmoms = np.concatenate([frame.labels["magmoms"] for frame in iron])
    assert len(magmoms) == 62_932
    assert np.isclose(np.mean(magmoms > 0.1), 0.989, atol=5e-4)
    assert np.isclose(np.median(magmoms), 2.12, atol=5e-3)
    assert np.isclose(magmoms.max(), 3.04, atol=5e-3)


@exhaustive
def test_tungsten_beryllium_is_complete():
    frames = list(open_frames(find("fitsnap/WBe_PRB2019.json.tar.gz"), READER, {}))
    assert all(isinstance(frame, Frame) for frame in frames)
    assert len(frames) == 25_422
    assert sum(len(frame.atomic_numbers) for frame in frames) == 531_642
    assert len({frame.info["group"] for frame in frames}) == 44
