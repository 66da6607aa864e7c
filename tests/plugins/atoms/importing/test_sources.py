"""Files, readers, units and groups of sources. Oracle for matching: pathlib's glob."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import numpy as np
import pytest

from pipeline_atoms.config.datasets import Source
from pipeline_atoms.importing.groups import name_group
from pipeline_atoms.importing.sources import find_sources
from pipeline_atoms.readers import Frame, Reader, Units
from pipeline_atoms.readers.catalogue import READERS
from pipeline_core.units import GPA


@pytest.fixture
def folder(tmp_path) -> Path:
    for name in (
        "runs/hot/1.xyz",
        "runs/hot/2.xyz",
        "runs/cold/deep/1.xyz",
        "runs/notes.txt",
        "runs/cold/1.extxyz.gz",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return tmp_path


def find(folder: Path, *sources, known=None):
    known = READERS if known is None else known
    return find_sources(folder / "d.yaml", [Source(**s) for s in sources], known)


def make_frame(**info) -> Frame:
    return Frame(
        atomic_numbers=np.ones(1, np.int32),
        positions=np.zeros((1, 3)),
        cell=np.eye(3),
        pbc=np.ones(3, bool),
        labels={},
        info=info,
        index=4,
    )


@pytest.mark.parametrize(
    "pattern", ["runs/*/*.xyz", "runs/**/*.xyz", "runs/hot/1.xyz", "runs/**/1.*"]
)
def test_patterns_match_as_pathlib_has_it(folder, pattern):
    (source,) = find(folder, {"path": pattern})
    assert sorted(source.files.values()) == sorted(p for p in folder.glob(pattern) if p.is_file())
    assert source.reader.name == "extxyz"


def test_patterns_may_lead_upwards_or_be_absolute(folder):
    (upwards,) = find(folder / "runs", {"path": "../runs/hot/*.xyz"})
    (absolute,) = find(folder / "runs", {"path": str(folder / "runs/hot/*.xyz")})
    expected = {folder / "runs/hot/1.xyz", folder / "runs/hot/2.xyz"}
    assert {p.resolve() for p in upwards.files.values()} == expected
    assert set(absolute.files.values()) == expected
    assert list(upwards.files) == ["../runs/hot/1.xyz", "../runs/hot/2.xyz"]


def test_a_file_name_that_is_not_utf_8_is_named(folder):
    (folder / "runs/hot" / os.fsdecode(b"3\xff.xyz")).write_text("")
    for pattern in ("runs/hot/*.xyz", "runs/**/*.xyz"):
        with pytest.raises(ValueError, match=r"3\\xff\.xyz' is not UTF-8; rename it"):
            find(folder, {"path": pattern})


def make_reader(name: str, *suffixes: str) -> Reader:
    return Reader(name=name, summary="", suffixes=suffixes, units=Units(), read=lambda *_: iter(()))


def test_formats_that_do_not_decide_are_refused(folder):
    a, b, c = make_reader("a", ".xyz"), make_reader("b", ".xyz"), make_reader("c", ".gz")
    with pytest.raises(ValueError, match=r"files of several formats match: .*\(a\).*\(c\)"):
        find(folder, {"path": "runs/**/1.*"}, known=[a, c])
    with pytest.raises(ValueError, match="two readers are called 'a'"):
        find(folder, {"path": "runs/hot/1.xyz"}, known=[a, a])
    (source,) = find(folder, {"path": "runs/notes.txt", "reader": "b"}, known=[a, b, c])
    assert source.reader.name == "b"


def test_the_dataset_file_overrides_single_units(folder):
    units = {"stress": "kbar", "stress_sign": "pressure"}
    (source,) = find(folder, {"path": "runs/hot/1.xyz", "units": units})
    assert source.factors["stress"] == pytest.approx(-GPA / 10)
    names = ("energy", "forces", "positions", "cell")
    assert [source.factors[name] for name in names] == [1.0] * 4


@pytest.mark.parametrize(
    ("pattern", "group", "expected"),
    [
        ("runs/**/*.xyz", None, ["", "", ""]),
        ("runs/**/*.xyz", "folder", ["cold/deep", "hot", "hot"]),
        ("runs/**/*.xyz", "file", ["cold/deep/1.xyz", "hot/1.xyz", "hot/2.xyz"]),
        ("runs/**/*.xyz", "composition", ["HfO2"] * 3),
        ("runs/**/*.xyz", "phase", ["cubic"] * 3),
        ("runs/**/*.xyz", "T", ["300"] * 3),
        ("runs/hot/*.xyz", "folder", ["hot", "hot"]),
        ("./runs/hot/1.xyz", "folder", ["hot"]),
    ],
)
def test_groups(folder, pattern, group, expected):
    (source,) = find(folder, {"path": pattern, "group": group})
    one = make_frame(phase="cubic", T=300)
    assert [name_group(source, name, one, "HfO2") for name in source.files] == expected


def test_a_missing_key_names_what_there_is(folder):
    (source,) = find(folder, {"path": "runs/hot/1.xyz", "group": "phse"})
    message = r"frame 4.*folder, file, composition, phase.*mean 'phase'"
    with pytest.raises(ValueError, match=message):
        name_group(source, "runs/hot/1.xyz", make_frame(phase="cubic"), "")
    (source,) = find(folder / "runs" / "hot", {"path": "*.xyz", "group": "folder"})
    assert source.root == PurePosixPath()
    assert {name_group(source, name, make_frame(), "") for name in source.files} == {"hot"}
