"""Files that are read beside the raw files that a dataset names: an edit of them is noticed.

The format is DeePMD-kit's, of which `type.raw` stands for a whole folder. Oracle: ASE's frames.
"""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline_atoms.importing import dataset
from pipeline_atoms.importing.sources import find_beside
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.artifacts.store import read_provenance
from pipeline_core.project.lineage import find_dataset_fault
from pipeline_core.workflow.rules import Plan
from plugins.atoms.readers.deepmd_systems import make_frames, write_system

SOURCES = [{"path": "systems/*/type.raw", "group": "folder"}]
ENERGY = "systems/hot/set.000/energy.npy"


@pytest.fixture
def systems(workshop):
    """Two systems of 20 and of 10 frames; returns their frames in the order of the samples."""
    cold, hot = make_frames(20), make_frames(10, seed=1)
    write_system(workshop.datasets / "systems/cold", cold, per_set=12)
    write_system(workshop.datasets / "systems/hot", hot, per_set=12)
    return [*cold, *hot]


def add_to_energies(workshop, value):
    path = workshop.datasets / ENERGY
    np.save(path, np.load(path) + value)


def read_energies(run):
    with SampleFile(run.data, "data") as samples:
        return np.array([samples.read(i)["energy"] for i in range(len(samples))])


def test_systems_are_imported_as_ase_has_them(workshop, systems):
    run, summary = workshop.import_(sources=SOURCES, split={"method": "group"})
    assert summary["stress"] == ["confirmed"]
    with SampleFile(run.data, "data") as samples:
        for i, atoms in enumerate(systems):
            sample = samples.read(i)
            np.testing.assert_array_equal(sample["forces"], atoms.get_forces())
            np.testing.assert_allclose(
                sample["stress"], atoms.get_stress(voigt=False), rtol=1e-9, atol=1e-15
            )
        assert str(sample["source"]) == "systems/hot/type.raw:9"
        assert str(sample["group"]) == "hot"
    names = {"systems/hot/type.raw", "systems/hot/type_map.raw", ENERGY}
    assert names <= set(read_provenance(run.data)["inputs"])
    assert names <= set(json.loads(run.report.read_text())["provenance"]["inputs"])
    workshop.write("raw/a.xyz", systems)
    assert find_beside(workshop.dataset()) == {}  # formats of single files have nothing


def test_an_edit_of_an_array_makes_the_import_stale(workshop, systems, monkeypatch):
    run, _ = workshop.import_(sources=SOURCES)
    monkeypatch.chdir(workshop.datasets.parents[1])
    job = SimpleNamespace(dataset="alloys")

    def plan():
        made = Plan({"experiments": []}, workshop.registry)
        return made.raw_files(job), made.dataset(job)

    assert find_dataset_fault(run) is None
    files, params = plan()
    assert f"workflows/datasets/{ENERGY}" in files
    assert plan() == (files, params)
    add_to_energies(workshop, 1.0)
    fault = find_dataset_fault(run)
    assert fault is not None
    assert f"raw file {ENERGY} is new or has changed since the import" in fault.problem
    assert plan()[1] != params
    shutil.copytree(
        workshop.datasets / "systems/hot/set.000", workshop.datasets / "systems/hot/set.001"
    )
    assert len(plan()[0]) == len(files) + 5


def test_kept_samples_are_of_the_arrays_as_they_are(workshop, systems, monkeypatch):
    monkeypatch.setattr(dataset, "_LARGE", 0)
    monkeypatch.setattr("pipeline_atoms.workers.count_cores", lambda: 1)
    run, _ = workshop.import_(sources=SOURCES)
    before = read_energies(run)
    _, summary = workshop.import_(sources=SOURCES)
    assert summary["unchanged_files"] == 2
    add_to_energies(workshop, 1.0)
    _, summary = workshop.import_(sources=SOURCES)
    assert "unchanged_files" not in summary
    np.testing.assert_allclose(read_energies(run) - before, [0.0] * 20 + [1.0] * 10, atol=1e-12)
