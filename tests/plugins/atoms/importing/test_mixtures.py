"""Mixtures of datasets. Oracles: the imports of the parts alone, and NumPy's least squares."""

from __future__ import annotations

import json

import numpy as np
import pytest
import yaml
from ase.calculators.singlepoint import SinglePointCalculator

from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.artifacts.store import read_provenance
from pipeline_core.config.datasets import DatasetFile
from pipeline_core.fields import SPLITS
from pipeline_core.model_info import ModelInfo
from plugins.atoms.importing.conftest import change_results

KCAL = 0.0433641153087705  # eV, per molecule


@pytest.fixture
def parts(workshop, alloys):
    """Two datasets that differ in units, labels, groups and split."""
    small = []
    for atoms in alloys[:20]:
        one = atoms[:3]
        energy = atoms.get_potential_energy() * 0.7
        one.calc = SinglePointCalculator(one, energy=energy / KCAL)
        small.append(one)
    workshop.write("raw/cold/a.xyz", alloys[20:40])
    workshop.write("raw/hot/a.xyz", alloys[40:])
    workshop.write("kcal/b.xyz", small)
    write(
        workshop,
        "alloys",
        sources=[{"path": "raw/**/*.xyz", "group": "folder"}],
        split={"method": "list", "val_groups": ["hot"]},
    )
    write(
        workshop,
        "small",
        sources=[{"path": "kcal/*.xyz", "units": {"energy": "kcal/mol"}}],
        labels=["energy"],
        split={"val": 0.2, "test": 0.3, "seed": 4},
    )
    return ("alloys", "small")


def write(workshop, name, **content):
    path = workshop.datasets / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"description": "d", **content}))
    return path


def import_dataset(workshop, name):
    run = workshop.project.load_dataset(name)
    summary = workshop.registry.select_hook("data", None)(run=run)
    with SampleFile(run.data, "data") as samples:
        content = [samples.read(i) for i in range(len(samples))]
        attributes = {
            key: json.loads(samples.attributes[key])
            for key in ("labels", "elements", "reference_energies")
        }
    return run, summary, content, attributes


def write_mixture(workshop, parts, **content):
    path = write(workshop, "both", parts=[{"dataset": part} for part in parts], **content)
    return path, *import_dataset(workshop, "both")


def test_samples_are_those_of_the_parts_with_their_units_and_splits(workshop, parts):
    _, run, summary, result, attributes = write_mixture(workshop, parts)
    assert attributes["labels"] == ["energy", "forces", "stress"]
    expected = [one for part in parts for one in import_dataset(workshop, part)[2]]
    assert len(result) == len(expected) == summary["samples"] == 60
    for one, other in zip(result, expected, strict=True):
        for name, value in other.items():
            if name != "group":
                np.testing.assert_array_equal(one[name], value)
    assert {str(one["group"]) for one in result} == {"alloys/cold", "alloys/hot", "small"}
    for one in result[40:]:
        assert np.isnan(one["forces"]).all()
        assert one["forces"].shape == (3, 3)
        assert np.isnan(one["stress"]).all()
    report = json.loads(run.report.read_text())
    assert report["labels"]["forces"] == {"present": 40, "missing": 20}
    assert report["parts"]["alloys"]["splits"] == {"train": 20, "val": 20, "test": 0}
    assert report["parts"]["small"]["splits"] == {"train": 10, "val": 4, "test": 6}
    assert report["parts"]["small"]["sizes"] == {"3": 20}
    assert [source["part"] for source in report["sources"]] == ["alloys", "small"]
    assert report["splits"] == {name: summary[name] for name in SPLITS}


def test_there_is_one_fit_of_the_reference_energies(workshop, parts):
    _, run, summary, result, attributes = write_mixture(workshop, parts)
    training = [one for one in result if one["split"] == 0]
    counts = np.array([[np.sum(one["atomic_numbers"] == z) for z in (13, 29)] for one in training])
    energy = np.array([one["energy"] for one in training])
    expected, *_ = np.linalg.lstsq(counts, energy, rcond=None)
    assert attributes["reference_energies"] == pytest.approx(
        dict(zip(("Al", "Cu"), expected, strict=True))
    )
    left = (energy - counts @ expected) / counts.sum(axis=1)
    content = json.loads(run.report.read_text())["parts"]
    for part, rows in (("alloys", slice(0, 20)), ("small", slice(20, 30))):
        shown = content[part]["energies_less_references"]
        rms = np.sqrt(np.mean(left[rows] ** 2))
        assert shown["rms"] == pytest.approx(rms)
        assert shown["mean"] == pytest.approx(left[rows].mean())
        assert summary["parts"][part]["reference"]["rms"] == pytest.approx(rms)
    assert summary["reference_rms"] == pytest.approx(np.sqrt(np.mean(left**2)))


def test_given_reference_energies_are_those_of_the_mixture(workshop, parts):
    given = {"Al": -1.0, "Cu": -2.0}
    *_, attributes = write_mixture(workshop, parts, reference_energies=given)
    assert attributes["reference_energies"] == given
    with pytest.raises(ValueError, match=r"both.yaml: .*max_reference_energy = 0.001 eV"):
        write_mixture(workshop, parts, max_reference_energy=0.001)
    write(workshop, "again", sources=[{"path": "raw/hot/a.xyz", "repeat": [1, 1, 2]}])
    with pytest.raises(ValueError, match=r"again.yaml: .*raw/hot/a.xyz also belongs to"):
        write_mixture(workshop, ["alloys", "again"])  # parts share no file


def test_a_part_of_another_method_is_noticed(workshop, parts, alloys):
    _, _, summary, *_ = write_mixture(workshop, parts)
    assert not any("another method" in warning for warning in summary["warnings"])
    shifted = [
        change_results(a, energy=a.get_potential_energy() + 500.0, stress=None) for a in alloys
    ]
    workshop.write("other/c.xyz", shifted)
    write(workshop, "other", sources=[{"path": "other/c.xyz"}], labels=["energy", "forces"])
    _, _, summary, *_ = write_mixture(workshop, ["alloys", "other"])
    assert sum("was it calculated by another method" in one for one in summary["warnings"]) == 2


def test_each_part_is_as_strict_as_it_says(workshop, parts):
    path = workshop.datasets / "kcal" / "b.xyz"
    path.write_text(path.read_text().replace("Al ", "Xx ", 1).replace("Cu ", "Xx ", 1))
    _, run, summary, *_ = write_mixture(workshop, parts)
    assert summary["skipped"] > 0
    assert json.loads(run.report.read_text())["skipped"]["count"] == summary["skipped"]
    file = workshop.datasets / "small.yaml"
    file.write_text(file.read_text() + "strict: true\n")
    with pytest.raises(ValueError, match=r"kcal/b.xyz: frame \d+: .*set strict: false"):
        write_mixture(workshop, parts)


def test_where_a_mixture_comes_from_and_what_runs_it_again(workshop, parts):
    _, run, *_ = write_mixture(workshop, parts)
    record = read_provenance(run.data)
    assert list(record["parts"]) == list(parts)
    names = ["raw/cold/a.xyz", "raw/hot/a.xyz", "kcal/b.xyz"]
    assert set(record["inputs"]) == set(names)
    assert [*run.find_raw_files().values()] == [workshop.datasets / name for name in names]
    before = run.select_params()
    file = workshop.datasets / "small.yaml"
    file.write_text(file.read_text().replace("description: d", "description: other"))
    assert workshop.project.load_dataset("both").select_params() == before
    file.write_text(file.read_text().replace("seed: 4", "seed: 5"))
    assert workshop.project.load_dataset("both").select_params() != before


@pytest.mark.parametrize(
    ("name", "second", "message"),
    [
        (
            "nested",
            {"dataset": "both"},
            r"nested.yaml:4: parts.1.dataset: 'both' is a mixture itself",
        ),
        ("both", {"dataset": "both"}, r"both.yaml:4: .*is a mixture itself"),
        ("both", {"dataset": "smal"}, r"both.yaml:4: parts.1.dataset: .*did you mean .*small.yaml"),
        ("both", {"dataset": "small"}, r"'small' is named twice"),
        ("both", {"dataset": "alloys", "weight": 2}, r"both.yaml:\d: parts.1.weight: unknown key"),
    ],
)
def test_a_part_must_be_a_dataset_of_its_own(workshop, parts, name, second, message):
    write(workshop, "both", parts=[{"dataset": part} for part in parts])
    write(workshop, name, parts=[{"dataset": "small"}, second])
    with pytest.raises(ValueError, match=message):
        workshop.project.load_dataset(name)


@pytest.mark.parametrize("own_file", [True, False])
def test_data_of_a_plugin_cannot_be_mixed(workshop, parts, monkeypatch, own_file):
    class Points(DatasetFile):
        """Data of a plugin's own kind."""

        points: int = 3

    info = ModelInfo(
        name="maker",
        summary="s",
        citation="c",
        options=DatasetFile,
        dataset=Points if own_file else None,
    )
    monkeypatch.setattr(type(workshop.registry), "get_model_info", lambda self, name: info)
    rest = {"points": 4} if own_file else {"sources": [{"path": "kcal/*.xyz"}]}
    write(workshop, "made", plugin="maker", **rest)
    write(workshop, "both", parts=[{"dataset": "small"}, {"dataset": "made"}])
    with pytest.raises(ValueError, match=r"both.yaml:4: .*'made' are made by plugin 'maker'"):
        workshop.project.load_dataset("both")
