"""Artifacts of earlier versions are read as those of today, and stay as they are."""

import hashlib

import h5py
import numpy as np
import pytest

from pipeline_core.artifacts import store, upgrades


def write_version(path, schema, version):
    with store.create(path, schema, {}) as file:
        file["group/a"] = np.arange(5)
        file["group"].attrs["unit"] = "eV"
        file["names"] = np.array(["x", "y"], dtype=h5py.string_dtype())
        file.attrs["schema_version"] = version


def test_each_version_is_made_of_the_one_before(tmp_path, monkeypatch):
    def rename(new, old):
        new.move("group/a", "group/b")
        new.attrs["sum"] = int(old["group/a"][:].sum())

    def add(new, old):
        new["group/c"] = [new.attrs["sum"]]

    monkeypatch.setitem(upgrades.STORES, "graph", upgrades.Versions(3, {1: rename, 2: add}))
    path = tmp_path / "graph.h5"
    write_version(path, "graph", 1)
    before = hashlib.sha256(path.read_bytes()).digest()
    with store.open_artifact(path, "graph") as file:
        assert sorted(file["group"]) == ["b", "c"]
        assert file["group/b"][:].tolist() == [0, 1, 2, 3, 4]
        assert file["group/c"][:].tolist() == [10]
        assert file["group"].attrs["unit"] == "eV"
        assert file["names"].asstr()[:].tolist() == ["x", "y"]
        assert file.attrs["schema_version"] == 3
        assert file.mode == "r"
    assert hashlib.sha256(path.read_bytes()).digest() == before
    with store.create(path, "graph", {}) as file:
        assert file.attrs["schema_version"] == 3


@pytest.mark.parametrize("version", [0, 1])
def test_a_version_without_an_upgrade_is_refused(tmp_path, version):
    path = tmp_path / "partition.h5"
    write_version(path, "partition", version)
    message = rf"partition\.h5: of version {version}, which this package cannot read; remove"
    with pytest.raises(ValueError, match=message), store.open_artifact(path, "partition"):
        pass
