"""Opening files of any format, and the errors that a user can make."""

import gzip
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline_atoms.readers import BadFrame, Frame, Reader, Units, extxyz
from pipeline_atoms.readers.catalogue import READERS, guess_reader, open_frames
from pipeline_core.units import find_factor, find_stress_factor

ATOM = "1\nProperties=species:S:1:pos:R:3 energy=-1\nH 0 0 0\n"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.xyz"
    path.write_text(ATOM)
    return path


def test_names_and_endings_are_unique_and_units_are_known():
    result = READERS
    names = ["ase", "cp2k", "deepmd", "extxyz", "fitsnap", "mptrj", "vasp"]
    assert sorted(reader.name for reader in result) == names
    counts = Counter(suffix for reader in result for suffix in reader.suffixes)
    assert set(counts.values()) == {1}
    for reader in result:
        for kind in ("energy", "length", "force"):
            assert find_factor(kind, getattr(reader.units, kind)) > 0
        assert find_stress_factor(reader.units.stress, reader.units.stress_sign) != 0
        assert reader.keys == (reader.values is not None)
        assert reader.summary.endswith(".")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train.xyz", "extxyz"),
        ("train.extxyz.gz", "extxyz"),
        ("a.traj", "ase"),
        ("a.db", "ase"),
        ("vasprun.xml", "vasp"),
        ("OUTCAR.gz", "vasp"),
        ("000.log.gz", "cp2k"),
        ("job.out", "cp2k"),
        ("MPtrj_2022.9_full.json", "mptrj"),  # rather than .json
        ("system/type.raw", "deepmd"),
        ("WBe_PRB2019.json.tar.gz", "fitsnap"),
    ],
)
def test_endings_suggest_formats(name, expected):
    assert guess_reader(Path(name), READERS).name == expected


def test_an_ending_of_no_or_of_two_formats_is_refused():
    message = r"^a\.dat: no format has this ending; name the reader .* ase, cp2k"
    with pytest.raises(ValueError, match=message):
        guess_reader(Path("a.dat"), READERS)
    other = replace(extxyz.READER, name="other")
    message = r"several formats have this ending; .* one of extxyz, other"
    with pytest.raises(ValueError, match=message):
        guess_reader(Path("a.xyz"), [*READERS, other])


def test_a_file_that_is_not_there_or_empty(path):
    path.write_text("\n")
    for given, message in (
        (path.with_name("b.xyz"), r"b\.xyz: no such file; check the path"),
        (path.parent, "is a folder; name the files in it"),
        (path, r"a\.xyz: holds no frames of format 'extxyz'"),
    ):
        with pytest.raises(ValueError, match=message):
            list(open_frames(given, extxyz.READER, {}))


def test_a_file_that_may_not_be_read(path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(extxyz, "open_text", refuse)
    message = r"a\.xyz: cannot be read beyond frame 0 \(Permission denied\); check"
    with pytest.raises(ValueError, match=message):
        list(open_frames(path, extxyz.READER, {}))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_a_file_that_is_not_compressed_as_its_name_says(path, suffix):
    other = path.rename(path.with_name(path.name + suffix))
    message = r"a\.xyz\..*: cannot be read beyond frame 0 .* fetch it again"
    with pytest.raises(ValueError, match=message):
        list(open_frames(other, extxyz.READER, {}))


def test_damage_within_compressed_data(path):
    rng = np.random.default_rng(0)
    text = "".join(ATOM.replace("0 0 0", f"{x} 0 0") for x in rng.normal(size=2000))
    content = bytearray(gzip.compress(text.encode()))
    content[len(content) // 2] ^= 0xFF
    other = path.with_name("a.xyz.gz")
    other.write_bytes(content)
    with pytest.raises(ValueError, match="gzip -t"):
        list(open_frames(other, extxyz.READER, {}))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"energies": "E"}, "keys: energies unknown; labels are energy, forces, stress, magmoms"),
        (
            {"stress": "REF_virials"},
            "'REF_virials' is a virial, not a stress; write stress = -virial / volume",
        ),
    ],
)
def test_keys_that_cannot_be_right(path, keys, message):
    with pytest.raises(ValueError, match=message):
        open_frames(path, extxyz.READER, keys)


def test_a_reader_of_a_plugin_is_checked_like_ours(path):
    def read(path, keys):
        for index, energy in enumerate([1.0, np.nan]):
            yield Frame(
                atomic_numbers=np.ones(1, np.int32),
                positions=np.zeros((1, 3)),
                cell=np.zeros((3, 3)),
                pbc=np.zeros(3, bool),
                labels={"energy": np.array(energy)},
                index=index,
            )
        yield BadFrame(2, "said by the reader")
        raise ValueError("the rest is nonsense")

    reader = Reader(name="toy", summary="", suffixes=(), units=Units(), read=read)
    frames = open_frames(path, reader, {})
    assert isinstance(next(frames), Frame)
    assert next(frames) == BadFrame(1, "NaN in energy")
    assert next(frames) == BadFrame(2, "said by the reader")
    with pytest.raises(ValueError, match=r"a\.xyz: the rest is nonsense"):
        next(frames)
