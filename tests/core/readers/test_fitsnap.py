"""FitSNAP's JSON.

Oracles: counts published with the data, and differences of energy, which show the sign and the unit
of the stress.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest

from pipeline_core.readers import BadFrame, Frame
from pipeline_core.readers.catalogue import open_frames
from pipeline_core.readers.fitsnap import READER, read
from pipeline_core.units import find_stress_factor
from real_data import find

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


def write_archive(path, **changes):
    """Write an archive with one good file, one with changed styles and one that is no data."""
    files = {
        "set/JSON/Liquid/a.json": "# comment\n" + json.dumps({"Dataset": DATASET}),
        "set/JSON/Solid/b.json": json.dumps({"Dataset": {**DATASET, **changes}}),
        "set/README.md": "no data",
        "set/JSON/Solid/._b.json": "left by macOS",
    }
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


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


def test_a_single_file_takes_its_group_from_its_folder(tmp_path):
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


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"StressStyle": "atm"}, "StressStyle is 'atm', known are bar, kB, kbar, GPa"),
        ({"ForcesStyle": None}, "ForcesStyle is None, known are"),
        ({"Data": [{"Energy": 1.0}]}, "not the layout of FitSNAP"),
        ({"Data": None}, "not the layout of FitSNAP"),
    ],
)
def test_a_file_that_cannot_be_used_costs_itself(tmp_path, changes, reason):
    good, bad = read(write_archive(tmp_path / "a.tar.gz", **changes), {})
    assert isinstance(good, Frame)
    assert bad.index == 1
    assert bad.reason.startswith("set/JSON/Solid/b.json: ")
    assert reason in bad.reason


def test_a_truncated_archive_ends_with_a_bad_frame(tmp_path):
    content = find("fitsnap/Fe_Linear_NPJ2021.json.tar.gz").read_bytes()
    path = tmp_path / "a.tar.gz"
    path.write_bytes(content[:200_000])
    *frames, last = open_frames(path, READER, {})
    assert len(frames) > 10
    assert isinstance(last, BadFrame)
    assert "truncated" in last.reason


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"no archive" * 100)
    with pytest.raises(ValueError, match=r"neither a \.json file nor a tar archive"):
        list(open_frames(tmp_path / "a.tar", READER, {}))


@pytest.fixture
def plain(tmp_path):
    """An archive of three frames that is not compressed."""
    path, text = tmp_path / "a.tar", json.dumps({"Dataset": DATASET}).encode()
    with tarfile.open(path, "w") as tar:
        for number in range(3):
            member = tarfile.TarInfo(f"A/{number}.json")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    return path


def test_a_damaged_header_does_not_end_the_archive(plain):
    content = bytearray(plain.read_bytes())
    header = content.index(b"A/1.json")
    content[header + 130] ^= 1  # a bit of the time
    plain.write_bytes(content)
    good, bad = open_frames(plain, READER, {})
    assert isinstance(good, Frame)
    assert "the archive is damaged (bad checksum); what follows is lost" in bad.reason


def test_an_archive_ends_with_its_mark(plain):
    content = plain.read_bytes()
    for damaged, reason in (
        (content[: content.index(b"A/2.json")], "empty header"),
        (content + content, "something follows its end"),
    ):
        plain.write_bytes(damaged)
        *frames, bad = open_frames(plain, READER, {})
        assert all(isinstance(frame, Frame) for frame in frames)
        assert reason in bad.reason


def test_a_frame_whose_name_has_changed_is_not_left_out(plain):
    content = plain.read_bytes()
    plain.write_bytes(content.replace(b"A/1.json", b"A/0/json"))  # the same sum of bytes
    assert plain.read_bytes() != content
    assert len([f for f in open_frames(plain, READER, {}) if isinstance(f, Frame)]) == 3


def test_a_sparse_file_is_not_expanded(tmp_path):
    member = tarfile.TarInfo("a.json")
    member.pax_headers = {"GNU.sparse.size": str(1 << 50), "GNU.sparse.map": "0,0"}
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member)
    (bad,) = open_frames(tmp_path / "a.tar.gz", READER, {})
    assert "a.json has holes" in bad.reason


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("Energy", 10**400, "Energy is not numeric"),
        ("Forces", [[0, 0, 1], [0, 0]], "Forces is not numeric"),
        ("Positions", {"x": 1}, "Positions is not numeric"),
        ("Spins", ["up", "down"], "Spins is not numeric"),
        ("Spins", 3.0, "not the layout of FitSNAP"),
        ("AtomTypes", [26, []], "26 is not a chemical element"),
        ("AtomTypes", "FeO", "AtomTypes is no list"),
        ("NumAtoms", 3, "AtomTypes is no list of NumAtoms elements"),
    ],
)
def test_a_value_of_a_wrong_type_is_named(tmp_path, key, value, reason):
    changes = {"Data": [{**DATASET["Data"][0], key: value}]}
    _, bad = open_frames(write_archive(tmp_path / "a.tar.gz", **changes), READER, {})
    assert "b.json: " in bad.reason
    assert reason in bad.reason


def test_a_key_that_is_given_twice_is_named(tmp_path):
    (tmp_path / "a.json").write_text('{"Dataset": {"Data": [{"Energy": 1, "Energy": 2}]}}')
    (bad,) = open_frames(tmp_path / "a.json", READER, {})
    assert "a.json: damaged JSON: the key 'Energy' is given twice" in bad.reason


@pytest.mark.parametrize("text", ["[" * 100_000, '{"Dataset": 3}', '{"Dataset": {"Data": {}}}'])
def test_json_of_another_shape_is_a_bad_frame(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    (bad,) = open_frames(tmp_path / "a.json", READER, {})
    assert "a.json: not the layout of FitSNAP" in bad.reason


@pytest.fixture(scope="module")
def iron():
    return list(open_frames(find("fitsnap/Fe_Linear_NPJ2021.json.tar.gz"), READER, {}))


def fit_energy_per_work(frames, unit):
    """Fit energy differences of slightly strained pairs to the work of the stress; 1 if right."""
    factor = find_stress_factor(unit, READER.units.stress_sign)
    by_size = defaultdict(list)
    for frame in frames:
        by_size[len(frame.atomic_numbers)].append(frame)
    differences, works = [], []
    for group in by_size.values():
        for a, b in pairwise(group):
            shift = (
                a.positions @ np.linalg.inv(a.cell) - b.positions @ np.linalg.inv(b.cell) + 0.5
            ) % 1
            strain = np.linalg.solve((a.cell + b.cell) / 2, b.cell - a.cell)
            if np.abs(shift - 0.5).max() > 1e-3 or not 1e-3 < np.abs(strain).max() < 0.02:
                continue
            volume = np.sqrt(abs(np.linalg.det(a.cell) * np.linalg.det(b.cell)))
            stress = (a.labels["stress"] + b.labels["stress"]) / 2 * factor
            works.append(volume * np.sum(stress * (strain + strain.T) / 2))
            differences.append(b.labels["energy"] - a.labels["energy"])
    assert len(works) > 20
    assert np.corrcoef(works, differences)[0, 1] > 0.99
    return np.polyfit(works, differences, 1)[0]


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


def test_stress_of_iron_has_the_stated_sign_and_unit(iron):
    strained = [frame for frame in iron if frame.info["group"] == "EOS_100"]
    assert np.isclose(fit_energy_per_work(strained, READER.units.stress), 1, atol=0.02)


@pytest.mark.slow
def test_tungsten_beryllium_is_complete_and_its_stress_is_in_kbar():
    frames = list(open_frames(find("fitsnap/WBe_PRB2019.json.tar.gz"), READER, {}))
    assert all(isinstance(frame, Frame) for frame in frames)
    assert len(frames) == 25_422
    assert sum(len(frame.atomic_numbers) for frame in frames) == 531_642
    assert len({frame.info["group"] for frame in frames}) == 44
    volumes = [frame for frame in frames if frame.info["group"] == "EOS_Data"]
    volumes.sort(key=lambda frame: abs(np.linalg.det(frame.cell)))
    assert np.isclose(fit_energy_per_work(volumes, "kbar"), 1, atol=0.05)  # the files say bar
