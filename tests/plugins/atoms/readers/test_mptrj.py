"""MPtrj's JSON, on files made with pymatgen in the layout of the data set.

Oracles: pymatgen's own reading of its structures, and json.load for everything else.
"""

import json

import numpy as np
import pytest
from pymatgen.core import Lattice, Structure

from pipeline_atoms.readers import BadFrame, Frame, mptrj
from pipeline_atoms.readers.catalogue import open_frames
from pipeline_atoms.readers.mptrj import READER, iterate_values, read


def record(rng, with_magmoms):
    lattice = Lattice(rng.normal(size=(3, 3)) + 5 * np.eye(3))
    n_atoms = int(rng.integers(1, 6))
    symbols = rng.choice(["Li", "O", "Fe", "U"], size=n_atoms).tolist()
    structure = Structure(lattice, symbols, rng.uniform(-1, 2, size=(n_atoms, 3)))
    if with_magmoms:
        structure.add_oxidation_state_by_element({"Li": 1, "O": -2, "Fe": 3, "U": 4})
    return {
        "structure": structure.as_dict(),
        "uncorrected_total_energy": rng.normal(),
        "corrected_total_energy": rng.normal(),
        "energy_per_atom": rng.normal(),
        "force": rng.normal(size=(n_atoms, 3)).tolist(),
        "stress": rng.normal(size=(3, 3)).tolist(),
        "magmom": rng.normal(size=n_atoms).tolist() if with_magmoms else None,
        "bandgap": 0.25,
        "mp_id": "mp-0",
    }


@pytest.fixture
def content():
    rng = np.random.default_rng(3)
    return {
        f"mp-{material}": {f"mp-{material}-0-{k}": record(rng, k % 2) for k in range(material % 3)}
        for material in range(6)
    }


@pytest.fixture
def path(tmp_path, content):
    path = tmp_path / "mptrj.json"
    path.write_text(json.dumps(content, indent=1))
    return path


@pytest.mark.parametrize("chunk", [1, 7, 1000, 1 << 22])
def test_frames_are_what_pymatgen_and_json_read(monkeypatch, path, content, chunk):
    monkeypatch.setattr(mptrj, "_CHUNK", chunk)
    frames = list(read(path, {}))
    expected = [(m, f, r) for m, records in content.items() for f, r in records.items()]
    assert [frame.index for frame in frames] == list(range(6)) == list(range(len(expected)))
    for frame, (mp_id, frame_id, reference) in zip(frames, expected, strict=True):
        structure = Structure.from_dict(reference["structure"])
        assert frame.atomic_numbers.tolist() == [site.specie.Z for site in structure]
        assert np.allclose(frame.positions, structure.cart_coords, rtol=0, atol=1e-14)
        assert np.array_equal(frame.cell, structure.lattice.matrix)
        assert frame.pbc.all()
        assert frame.info["mp_id"] == mp_id
        assert frame.info["frame_id"] == frame_id
        assert frame.info["bandgap"] == 0.25
        assert frame.labels["energy"] == reference["corrected_total_energy"]
        assert np.array_equal(frame.labels["forces"], reference["force"])
        assert np.array_equal(frame.labels["stress"], reference["stress"])
        assert ("magmoms" in frame.labels) == (reference["magmom"] is not None)
        if reference["magmom"] is not None:
            assert np.array_equal(frame.labels["magmoms"], reference["magmom"])


def test_another_energy_may_be_chosen(path, content):
    frame = next(read(path, {"energy": "uncorrected_total_energy"}))
    assert frame.labels["energy"] == content["mp-1"]["mp-1-0-0"]["uncorrected_total_energy"]
    assert "forces" in frame.labels
    assert next(iter(iterate_values(path)))["corrected_total_energy"].shape == ()


def test_a_bad_record_costs_itself(path, content):
    content["mp-2"]["mp-2-0-0"]["structure"]["sites"][0]["species"][0]["occu"] = 0.5
    del content["mp-2"]["mp-2-0-1"]["structure"]["lattice"]
    path.write_text(json.dumps(content))
    frames = list(read(path, {}))
    bad = [frame for frame in frames if isinstance(frame, BadFrame)]
    assert [frame.index for frame in bad] == [1, 2]
    assert bad[0].reason == "mp-2, mp-2-0-0: a site is partially occupied"
    assert "'lattice'" in bad[1].reason
    assert len(frames) == 6


def test_a_truncated_file_ends_with_a_bad_frame(path):
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    *frames, last = open_frames(path, READER, {})
    assert frames
    assert all(isinstance(frame, Frame) for frame in frames)
    assert last.reason.startswith("truncated")


def test_damage_is_noticed_before_the_whole_file_is_in_memory(monkeypatch, path, content):
    monkeypatch.setattr(mptrj, "_CHUNK", 1000)
    monkeypatch.setattr(mptrj, "_SLACK", 500)
    path.write_text('{"mp-0": {"f": oops}, "x": "' + "y" * 1_000_000 + '"}')
    read_sizes = []
    monkeypatch.setattr(
        mptrj._Scanner,
        "_grow",
        lambda self, grow=mptrj._Scanner._grow: read_sizes.append(1) or grow(self),
    )
    (frame,) = read(path, {})
    assert frame.reason.startswith("damaged JSON")
    assert len(read_sizes) < 5


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda r: r.update(corrected_total_energy=10**400), "energy is not numeric"),
        (lambda r: r.update(force=["x"]), "forces is not numeric"),
        (lambda r: r.update(structure=[]), "not a record of MPtrj"),
        (lambda r: r["structure"].update(sites=3), "not a record of MPtrj"),
        (lambda r: r["structure"]["lattice"].update(matrix="x"), "lattice.matrix is not numeric"),
        (lambda r: r["structure"]["lattice"].update(pbc=["x", 1, 2]), "lattice.pbc is not"),
        (lambda r: r["structure"]["sites"][0].update(species=["Fe"]), "species of a site is"),
        (lambda r: r["structure"]["sites"][0].update(abc=[None]), "abc of the sites is not"),
    ],
)
def test_a_value_of_a_wrong_type_is_named(path, content, change, reason):
    change(content["mp-1"]["mp-1-0-0"])
    path.write_text(json.dumps(content))
    bad, *others = open_frames(path, READER, {})
    assert bad.reason.startswith("mp-1, mp-1-0-0: ")
    assert reason in bad.reason
    assert all(isinstance(frame, Frame) for frame in others)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"name": "x"}', "not the layout of MPtrj"),
        ('{"mp-0": {"a": 3}}', "mp-0, a: is not a mapping"),
        ('{"mp-0": ' + "[" * 100_000, "nested too deeply"),
        # `json` would take the last of two frames of one name, and lose the other.
        ('{"mp-5": {"mp-5-0-0": {}, "mp-5-0-0": {}}}', "the key 'mp-5-0-0' is given twice"),
    ],
)
def test_json_of_another_shape_is_a_bad_frame(path, text, reason):
    path.write_text(text)
    *_, bad = open_frames(path, READER, {})
    assert reason in bad.reason
