"""Findings on a property in a file."""

from time import sleep

import h5py
import numpy as np
import pytest

from pipeline_atoms.properties.findings import Findings


@pytest.mark.slow
def test_equal_findings_have_equal_bytes(tmp_path):
    arrays = {"path": np.arange(3.0), "names": np.array(["Γ", "X"])}
    findings = Findings({"barrier_eV": 0.5, "stable": None}, arrays, {"path": "Å"})
    contents = []
    for name in ("first", "second"):
        with h5py.File(tmp_path / name, "w", libver="v110") as file:  # as artifacts are
            findings.store(file.create_group("neb"))
        contents.append((tmp_path / name).read_bytes())
        sleep(1.1)  # HDF5 records seconds
    assert contents[0] == contents[1]
    with h5py.File(tmp_path / "first") as file:
        assert dict(file["neb"].attrs) == {"barrier_eV": 0.5}
        assert file["neb/path"].attrs["unit"] == "Å"
        assert file["neb/names"].asstr()[:].tolist() == ["Γ", "X"]
