"""Ragged samples written as a stream and read at random. Oracle: the samples themselves."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_core.artifacts import samples as module
from pipeline_core.artifacts.samples import SampleFile, SampleWriter
from pipeline_core.fields import FIELDS, Field
from resealed import edit_sealed

NAMES = (
    "cell",
    "pbc",
    "energy",
    "group",
    "atomic_numbers",
    "positions",
    "edge_index",
    "angle_edges",
)
ENERGIES = Field(
    "level_energies", (2, 2), "eV", "block", "f4", "Levels.", "edge", label=True, exact=True
)


def sample_of(rng: np.random.Generator) -> dict:
    n_atoms, n_edges = rng.integers(1, 6), rng.integers(0, 9)
    n_angles = rng.integers(0, 3) if n_edges else 0
    return {
        "cell": rng.normal(size=(3, 3)),
        "pbc": rng.random(3) < 0.5,
        "energy": np.float64(rng.choice([rng.normal(), np.nan])),
        "group": np.asarray("Gruppe ä" * int(rng.integers(0, 3))),
        "atomic_numbers": rng.integers(1, 90, n_atoms).astype(np.int32),
        "positions": rng.normal(size=(n_atoms, 3)),
        "edge_index": rng.integers(0, n_atoms, (n_edges, 2)).astype(np.int32),
        "angle_edges": rng.integers(0, n_edges or 1, (n_angles, 2)).astype(np.int32),
    }


def write_samples(path, samples, names=NAMES):
    with SampleWriter(path, "graph", {}, [FIELDS[name] for name in names]) as writer:
        for sample in samples:
            writer.add(sample)
    return path


def assert_same(sample, expected):
    assert sample.keys() == expected.keys()
    for name, rows in expected.items():
        np.testing.assert_array_equal(sample[name], rows)
        if FIELDS[name].dtype != "str":
            assert sample[name].dtype == FIELDS[name].dtype


@pytest.mark.slow
@given(seed=st.integers(0, 1000), n=st.integers(0, 12), on_disk=st.booleans(), flush=st.booleans())
@settings(max_examples=40, deadline=None)
def test_round_trip(tmp_path_factory, seed, n, on_disk, flush):
    rng = np.random.default_rng(seed)
    expected = [sample_of(rng) for _ in range(n)]
    path = tmp_path_factory.mktemp("samples") / "graph.h5"
    with pytest.MonkeyPatch.context() as patch:
        if on_disk:
            patch.setattr(module, "_PRELOAD_BYTES", 0)
        if flush:
            patch.setattr(module, "_FLUSH_BYTES", 200)
            patch.setattr(module, "_BLOCK", 5)
        with SampleFile(write_samples(path, expected), "graph") as file:
            assert len(file) == n
            for got, sample in zip(file, expected, strict=True):
                assert_same(got, sample)
            for i in rng.permutation(n):
                assert_same(file.read(int(i)), expected[i])
            for kind, name in (
                ("atom", "positions"),
                ("edge", "edge_index"),
                ("angle", "angle_edges"),
            ):
                counts = [len(sample[name]) for sample in expected]
                np.testing.assert_array_equal(
                    file.count_rows(kind), np.array(counts, dtype=np.int64)
                )
            for name in NAMES:
                if n and FIELDS[name].kind != "sample":
                    rows = np.concatenate([sample[name] for sample in expected])
                    np.testing.assert_array_equal(file.read_column(name), rows)
            assert file.read_column("group").tolist() == [str(s["group"]) for s in expected]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path):
    """The writer holds a few megabytes of the 84 that it writes."""
    import tracemalloc

    fields = [FIELDS["positions"]]
    sample = {"positions": np.ones((1000, 3))}
    tracemalloc.start()
    with SampleWriter(tmp_path / "data.h5", "data", {}, fields) as writer:
        for _ in range(3500):
            writer.add({"positions": sample["positions"] * 1.0})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * module._FLUSH_BYTES


def test_a_sample_may_come_in_parts(tmp_path, monkeypatch):
    """Rows follow each other, and few parts are in memory at a time."""
    monkeypatch.setattr(module, "_FLUSH_BYTES", 100)
    names, path = ("cell", "positions", "atomic_numbers"), tmp_path / "data.h5"
    whole = {
        "cell": np.eye(3),
        "positions": np.arange(30.0).reshape(10, 3),
        "atomic_numbers": np.arange(1, 11),
    }
    first = {"cell": whole["cell"], **{name: whole[name][:4] for name in names[1:]}}
    later = [{name: whole[name][a : a + 3] for name in names[1:]} for a in (4, 7)]
    with SampleWriter(path, "data", {}, [FIELDS[name] for name in names]) as writer:
        writer.add(whole)
        writer.add_in_parts(iter([first, *later]))
        writer.add(whole)
    with SampleFile(path, "data") as file:
        assert file.count_rows("atom").tolist() == [10, 10, 10]
        for number in range(3):
            for name in names:
                np.testing.assert_array_equal(file.read(number)[name], whole[name])
    fields = [FIELDS[name] for name in names]
    with pytest.raises(AssertionError), SampleWriter(path, "data", {}, fields) as writer:
        writer.add_in_parts([first, {"positions": whole["positions"]}])


def test_a_column_is_added_at_the_end(tmp_path):
    rng = np.random.default_rng(1)
    expected = [sample_of(rng) for _ in range(5)]
    split = np.array([0, 2, 1, 0, 0], np.int8)
    path = tmp_path / "graph.h5"
    with SampleWriter(path, "graph", {}, [FIELDS[name] for name in NAMES]) as writer:
        for sample in expected:
            writer.add(sample)
        writer.add_column("split", split)
        writer.attributes["cutoff"] = 6.0
    with SampleFile(path, "graph") as file:
        np.testing.assert_array_equal(file.read_column("split"), split)
        read = file.read(1)
        assert file.attributes["cutoff"] == 6.0
    assert_same(read, expected[1] | {"split": split[1]})  # arrays stay valid after closing
    with SampleFile(path, "graph", ["positions", "energy"]) as file:
        assert_same(file.read(2), {n: expected[2][n] for n in ("positions", "energy")})
        np.testing.assert_array_equal(file.read_column("cell"), [s["cell"] for s in expected])
    path = tmp_path / "plugin.h5"  # with a field of its own, which keeps its meaning
    levels = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    with SampleWriter(path, "plugin/levels", {}, [ENERGIES]) as writer:
        writer.add({"level_energies": levels})
    with SampleFile(path, "plugin/levels") as file:
        assert file.fields == {"level_energies": ENERGIES}
        np.testing.assert_array_equal(file.read(0)["level_energies"], levels)


@pytest.mark.parametrize(
    "change",
    [
        {"positions": np.zeros((2, 3))},  # another number of atoms than atomic_numbers has
        {"cell": np.zeros((3, 2))},
        {"surplus": np.zeros(3)},
    ],
)
def test_a_wrong_sample_stops_the_writer(tmp_path, change):
    sample = sample_of(np.random.default_rng(2))
    sample["atomic_numbers"] = np.ones(3, np.int32)
    sample["positions"] = np.ones((3, 3))
    with pytest.raises(AssertionError):
        write_samples(tmp_path / "graph.h5", [sample, sample | change])
    assert list(tmp_path.iterdir()) == []


def test_a_field_that_is_not_there(tmp_path):
    path = write_samples(tmp_path / "graph.h5", [sample_of(np.random.default_rng(3))])
    with pytest.raises(ValueError, match=r"graph\.h5: has no field 'forces', only .*positions"):
        SampleFile(path, "graph", ["forces"])
    with pytest.raises(ValueError, match="holds 'graph', expected 'data'"):
        SampleFile(path, "data")
    with SampleFile(path, "graph") as file:
        for index in (-1, 1):  # a mistake of the caller
            with pytest.raises(AssertionError):
                file.read(index)
    # A file that is still open for reading could not be opened for writing.
    with h5py.File(path, "r+"):
        pass


def test_damage_in_an_array_and_in_offsets_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PRELOAD_BYTES", 0)
    rng = np.random.default_rng(5)
    expected = [sample_of(rng) for _ in range(50)]
    path = write_samples(tmp_path / "graph.h5", expected)
    whole = path.read_bytes()
    offsets = np.cumsum([0, *(len(s["positions"]) for s in expected)])
    for pattern in (expected[7]["positions"].tobytes(), offsets.tobytes()[:64]):
        assert whole.count(pattern) == 1
        damaged = bytearray(whole)
        damaged[whole.index(pattern) + 20] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"graph\.h5: its contents are damaged"):
            read_all(path)


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("offsets/atom", 0, 1),
        ("offsets/atom", 1, 10**6),  # then they fall
        ("offsets/atom", -1, 10**6),
        ("offsets/edge", 1, -1),
    ],
)
def test_offsets_that_do_not_fit_are_refused(tmp_path, name, place, value):
    path = write_some(tmp_path)
    with edit_sealed(path) as file:
        file[name][place] = value
    with pytest.raises(ValueError, match=r"graph\.h5: \S+ does not fit the rest .* run the stage"):
        read_all(path)


@pytest.mark.parametrize(
    ("name", "keeps", "named"),
    [
        ("offsets/atom", True, "offsets/atom"),
        ("offsets/atom", False, "positions"),
        ("energy", True, "energy"),
    ],
)
def test_offsets_and_fields_of_other_shapes_are_refused(tmp_path, name, keeps, named):
    """Shortened ones, and offsets that are not there."""
    path = write_some(tmp_path)
    with edit_sealed(path) as file:
        values = file[name][:-1]
        del file[name]
        if keeps:
            file[name] = values
    with pytest.raises(ValueError, match=f"{named} does not fit the rest of the file"):
        SampleFile(path, "graph", ["energy", "positions"])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("edge_index", 99, "edge_index of sample 0 refers to atom 99 of 5"),
        ("edge_index", -1, "edge_index of sample 0 refers to atom"),
        ("angle_edges", 40, "angle_edges of sample 0 refers to edge 40 of 4"),
    ],
)
@pytest.mark.parametrize("preload", [True, False])
def test_indices_beyond_their_sample_are_refused(tmp_path, name, value, words, preload):
    path = write_some(tmp_path)
    with edit_sealed(path) as file:
        file[name][0, 0] = value
    with SampleFile(path, "graph", preload=preload) as file:
        assert len(file.read(1)["positions"]) == 5
        for read in (lambda: file.read(0), lambda: list(file), lambda: [*file.read_range(0, 1)]):
            with pytest.raises(ValueError, match=rf"graph\.h5: {words}.*; run the stage"):
                read()


def test_indices_into_another_file_are_looked_at_there(tmp_path):
    sample = make_sample()
    edges = {name: sample[name] for name in ("edge_index", "angle_edges")}
    graph = write_samples(tmp_path / "graph.h5", [edges], [*edges])
    with SampleWriter(tmp_path / "data.h5", "data", {}, [FIELDS["positions"]]) as writer:
        writer.add({"positions": sample["positions"]})
    with edit_sealed(graph) as file:
        file["edge_index"][0, 0] = 5
    with SampleFile(tmp_path / "data.h5", "data") as data:
        beside = SampleFile(graph, "graph", beside=data)
        with (
            beside,
            pytest.raises(ValueError, match=r"edge_index of sample 0 .* atom 5 of 5"),
        ):
            beside.read(0)


def write_some(folder):
    return write_samples(folder / "graph.h5", [make_sample(), make_sample()])


def make_sample():
    """Five atoms, four edges, two angles."""
    edges = np.array([[0, 1], [1, 2], [2, 3], [3, 4]], dtype=np.int32)
    return sample_of(np.random.default_rng(0)) | {
        "atomic_numbers": np.arange(1, 6, dtype=np.int32),
        "positions": np.arange(15.0).reshape(5, 3),
        "edge_index": edges,
        "angle_edges": np.array([[0, 1], [2, 3]], dtype=np.int32),
    }


def read_all(path):
    with SampleFile(path, "graph") as file:
        return [file.read(i) for i in range(len(file))]
