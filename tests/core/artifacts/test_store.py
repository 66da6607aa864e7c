"""Artifacts are whole or absent, and damage is noticed.

Oracle: the operating system, which really kills writers and really refuses to write.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import h5py
import numpy as np
import pytest

from pipeline_core.artifacts import store, upgrades
from pipeline_core.system.processes import name_host

ARRAYS = {"a": np.arange(4000.0), "b": np.arange(300, dtype=np.int32)}


def write(path, schema="data", provenance=None):
    with store.create(path, schema, provenance or {"stage": "data"}) as file:
        for name, array in ARRAYS.items():
            file.create_dataset(name, data=array)


def write_something_impossible(path):
    with store.create(path, "data", {}) as file:
        file["a"] = ARRAYS["a"]
        file["b"] = object()


def read(path):
    with store.open_artifact(path, "data") as file, store.explain_damage(path):
        return {name: file[name][:] for name in ARRAYS}


def run_script(code: str, *arguments, **options):
    source = textwrap.dedent(code)
    return subprocess.Popen([sys.executable, "-c", source, *map(str, arguments)], **options)


def test_round_trip(tmp_path):
    path = tmp_path / "new" / "folder" / "data.h5"
    provenance = {"stage": "data", "inputs": {f"file {i}": "é" * 64 for i in range(5000)}}
    write(path, provenance=provenance)
    for name, array in read(path).items():
        np.testing.assert_array_equal(array, ARRAYS[name])
    assert store.read_provenance(path) == provenance
    assert [p.name for p in path.parent.iterdir()] == ["data.h5"]
    write(path.with_name("tree.h5"), schema="plugin/tree")
    with store.open_artifact(path.with_name("tree.h5"), "plugin/tree") as file:
        assert file.attrs["schema_version"] == 1


def test_an_exception_leaves_what_was_there(tmp_path):
    path = tmp_path / "data.h5"
    for before in (None, b"an earlier file"):
        if before:
            path.write_bytes(before)
        with pytest.raises(TypeError):
            write_something_impossible(path)
        assert [p.read_bytes() for p in tmp_path.iterdir()] == ([before] if before else [])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_writer_leaves_nothing_under_the_name(tmp_path, number):
    """What is left of it goes with the next write."""
    path = tmp_path / "data.h5"
    code = """
        import sys, time
        from pathlib import Path
        import numpy as np
        from pipeline_core.artifacts import store
        with store.create(Path(sys.argv[1]), "data", {}) as file:
            file["a"] = np.zeros(100_000)
            file.flush()
            print("writing", flush=True)
            time.sleep(60)
    """
    with run_script(code, path, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "writing\n"
        writer.send_signal(number)
        assert writer.wait() == -number
    assert not path.exists()
    assert [p.suffix for p in tmp_path.iterdir()] == [".part"]
    store.write_json(tmp_path / "b.json", {})
    assert [p.name for p in tmp_path.iterdir()] == ["b.json"]
    write(path)
    np.testing.assert_array_equal(read(path)["a"], ARRAYS["a"])


@pytest.fixture
def dead_pid():
    with run_script("") as process:
        pass
    return process.pid


def test_only_parts_of_dead_writers_are_removed(tmp_path, dead_pid):
    host, week_ago = name_host(), time.time() - 8 * 24 * 3600
    dead, alive = f".graph.h5.{host}.{dead_pid}.part", f".graph.h5.{host}.{os.getppid()}.part"
    far, left = ".graph.h5.far.away.1.part", ".model.pt.far.away.1.part"
    folder = tmp_path / f".structures.{host}.{dead_pid}.part"
    (folder / "inner").mkdir(parents=True)
    for name in (dead, alive, far, left):
        (tmp_path / name).write_bytes(b"half")
    os.utime(tmp_path / left, (week_ago, week_ago))
    write(tmp_path / "data.h5")
    assert {p.name for p in tmp_path.iterdir()} == {alive, far, "data.h5"}


@pytest.mark.slow
@pytest.mark.parametrize("limit", [10, 1000, 3000, 50_000, 1_000_000, 5_000_000])
def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path, limit):
    """The limit on the size of files makes writes fail for real, in the middle of HDF5."""
    code = """
        import resource, signal, sys
        from pathlib import Path
        import numpy as np
        from pipeline_core.artifacts import store
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
        try:
            with store.create(Path(sys.argv[1]), "data", {}) as file:
                data = file.create_dataset("a", (0,), maxshape=(None,), chunks=(8192,), dtype="f8")
                for i in range(100):
                    data.resize((i + 1) * 10_000, axis=0)
                    data[i * 10_000:] = i
        except ValueError as error:
            print(error)
    """
    pipe = subprocess.PIPE
    with run_script(
        code, tmp_path / "data.h5", limit, stdout=pipe, stderr=pipe, text=True
    ) as writer:
        shown, errors = writer.communicate()
    assert (writer.returncode, errors) == (0, "")
    assert "data.h5: cannot be written (File too large); free space on the disk" in shown
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_keeps_the_earlier_file(tmp_path, monkeypatch):
    path = tmp_path / "data.h5"
    write(path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(store.os, "fsync", full)
    with pytest.raises(
        ValueError, match=r"data\.h5: cannot be written \(No space left on device\)"
    ):
        write(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_an_interrupt_within_a_write_is_heard(tmp_path):
    # A shell that starts the tests in its background lets them, and their children, ignore it.
    code = """
        import signal, sys
        from pathlib import Path
        import numpy as np
        from pipeline_core.artifacts import store
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with store.create(Path(sys.argv[1]), "data", {}) as file:
            data = file.create_dataset("a", (0,), "f8", maxshape=(None,), chunks=(1000,))
            print("writing", flush=True)
            for i in range(1, 10_000_000):
                data.resize(i * 1000, axis=0)
                data[-1000:] = i
    """
    pipe = subprocess.PIPE
    with run_script(code, tmp_path / "data.h5", stdout=pipe, stderr=pipe, text=True) as writer:
        assert writer.stdout.readline() == "writing\n"
        try:
            errors = interrupt_writer(writer)
        finally:
            writer.kill()
    assert writer.returncode == -signal.SIGINT
    assert errors.strip().endswith("KeyboardInterrupt")
    assert list(tmp_path.iterdir()) == []


def interrupt_writer(writer):
    """Interrupt as people do: again if nothing happens, since HDF5 may swallow the first."""
    for _ in range(6):
        time.sleep(0.2)
        writer.send_signal(signal.SIGINT)
        try:
            return writer.communicate(timeout=8)[1]
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError("the writer hears no interrupt")


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "results").write_text("")
    with pytest.raises(ValueError, match=r"results/data\.h5: cannot be written"):
        write(tmp_path / "results" / "data.h5")
    with pytest.raises(ValueError, match=r"results/a\.json: cannot be written"):
        store.write_json(tmp_path / "results" / "a.json", {})


def test_json_is_whole_or_absent(tmp_path):
    path = tmp_path / "a.json"
    store.write_json(path, {"é": [1, 2.5, None]})
    assert store.read_json(path) == {"é": [1, 2.5, None]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.write_json(path, {"a": float("nan")})
    with pytest.raises(TypeError):
        store.write_json(path, {"a": object()})
    assert store.read_json(path) == {"é": [1, 2.5, None]}
    assert list(tmp_path.iterdir()) == [path]


def test_another_schema_and_a_later_version_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "graph.h5"
    write(path, schema="graph")
    with pytest.raises(ValueError, match=r"graph\.h5: holds 'graph', expected 'data'"):
        read(path)
    with monkeypatch.context() as patch:
        patch.setitem(upgrades.STORES, "data", upgrades.Versions(2))
        write(path)
    with pytest.raises(ValueError, match=r"h5: of version 2, this package reads up to 1"):
        read(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file; run the stage that makes it first"),
        (b"", "its contents are damaged: its end is missing"),
        (b"{}", "its contents are damaged: its end is missing"),
    ],
)
def test_what_is_no_artifact(tmp_path, content, message):
    path = tmp_path / "data.h5"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=f"data.h5: {message}"):
        read(path)
    if content is not None:
        assert store.read_provenance(path) == {}  # a plugin may write a file of its own
        with pytest.raises(ValueError, match=message):
            store.check(path)
    with h5py.File(path, "w") as file:
        file["a"] = ARRAYS["a"]
    assert not store.check(path)  # an export to another program
    with pytest.raises(ValueError, match="another program has written it"):
        read(path)
    with store.write_sealed(path, {}) as file:
        file.write(b"{}")
    with pytest.raises(ValueError, match="not a readable HDF5 file"):
        read(path)


@pytest.mark.slow
def test_every_flipped_bit_is_noticed(tmp_path):
    """In arrays, in the structure of HDF5, and in the collection that it keeps text in (GCOL)."""
    path = tmp_path / "data.h5"
    write(path, provenance={"stage": "data", "inputs": {"a.xyz": "0" * 64}})
    whole = path.read_bytes()
    start = whole.index(b"GCOL")
    text = range(start, start + int.from_bytes(whole[start + 8 : start + 16], "little"))
    rng = np.random.default_rng(0)
    places = [*rng.choice(len(whole), 600, replace=False), *rng.choice(text, 100, replace=False)]
    for place in map(int, places):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=re.escape(str(path))):
            read(path)
