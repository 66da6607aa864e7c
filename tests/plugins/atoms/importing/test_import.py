"""The data stage from raw files to artifacts. Oracle: ASE's own reading of the same files."""

from __future__ import annotations

import gc
import json
import weakref
from importlib.metadata import EntryPoint

import ase.io
import ase.units
import numpy as np
import pytest

from fake_packages import ATOMS, forget, install
from pipeline_atoms.importing import frames as frames_module
from pipeline_atoms.importing import shards
from pipeline_atoms.importing.sources import identify_readers
from pipeline_atoms.readers import Frame, catalogue
from pipeline_core import PROJECT
from pipeline_core.artifacts import provenance
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.artifacts.store import read_provenance
from pipeline_core.fields import FIELDS, SPLITS
from pipeline_core.project.project import Project
from pipeline_core.stages.builtin import load_registry
from plugins.atoms.importing.conftest import change_results, make_alloy

LINES = """
from pipeline_core import hookimpl
from pipeline_atoms.readers import Reader, Units

@hookimpl
def readers():
    return [Reader(name="lines", summary="", suffixes=(".lines",), units=Units(), read=iter)]
"""


def test_samples_are_what_ase_reads(workshop, alloys):
    path = workshop.write("raw/a.xyz", alloys)
    run, summary = workshop.import_()
    frames = ase.io.read(path, ":")
    with SampleFile(run.data, "data") as samples:
        assert len(samples) == len(frames) == summary["samples"]
        for i, atoms in enumerate(frames):
            sample = samples.read(i)
            np.testing.assert_array_equal(sample["atomic_numbers"], atoms.numbers)
            np.testing.assert_array_equal(sample["positions"], atoms.positions)
            np.testing.assert_array_equal(sample["cell"], atoms.cell.array)
            np.testing.assert_array_equal(sample["pbc"], atoms.pbc)
            np.testing.assert_array_equal(sample["forces"], atoms.get_forces())
            assert float(sample["energy"]) == atoms.get_potential_energy()
            np.testing.assert_allclose(
                sample["stress"], atoms.get_stress(voigt=False), rtol=0, atol=1e-15
            )
            assert str(sample["source"]) == f"raw/a.xyz:{i}"
        assert {f: samples.fields[f] for f in samples.fields} == {
            f: FIELDS[f] for f in samples.fields
        }


def test_units_and_sign_of_a_source_are_converted(workshop, alloys):
    converted = [atoms.copy() for atoms in alloys]
    for atoms, original in zip(converted, alloys, strict=True):
        atoms.set_cell(atoms.cell.array / ase.units.Bohr)
        atoms.positions /= ase.units.Bohr
        atoms.info["E"] = original.get_potential_energy() / ase.units.Hartree
        atoms.arrays["F"] = original.get_forces() * ase.units.Bohr / ase.units.Hartree
        atoms.info["S"] = -original.get_stress(voigt=False) / ase.units.GPa * 10
    workshop.write("raw/a.xyz", converted)
    units = {"length": "bohr", "energy": "hartree", "force": "hartree/bohr"}
    units |= {"stress": "kbar", "stress_sign": "pressure"}
    keys = {"energy": "E", "forces": "F", "stress": "S"}
    run, summary = workshop.import_(sources=[{"path": "raw/*", "units": units, "keys": keys}])
    assert summary["stress"] == ["confirmed"]
    with SampleFile(run.data, "data") as samples:
        for i, atoms in enumerate(alloys):
            sample = samples.read(i)
            expected = {"positions": atoms.positions, "cell": atoms.cell.array}
            expected |= {name: atoms.calc.results[name] for name in ("energy", "forces")}
            expected["stress"] = atoms.get_stress(voigt=False)
            for name, value in expected.items():
                # extxyz holds 8 decimals of columns
                np.testing.assert_allclose(sample[name], value, rtol=1e-6, atol=1e-6)


def test_artifacts_say_where_they_come_from_and_what_was_found(workshop, alloys):
    a, b = workshop.write("raw/hot/a.xyz", alloys[:40]), workshop.write("raw/b.xyz", alloys[40:])
    run, summary = workshop.import_(
        sources=[
            {"path": "raw/*/a.xyz", "group": "folder"},
            {"path": "raw/b.xyz", "group": "file", "split": "test"},
        ],
        split={"method": "random", "val": 0.25, "test": 0.0},
    )
    record = read_provenance(run.data)
    assert record["inputs"] == {
        "raw/hot/a.xyz": provenance.hash_file(a),
        "raw/b.xyz": provenance.hash_file(b),
    }
    assert record["readers"] == {}  # those of the engine have no fingerprint
    report = json.loads(run.report.read_text())
    assert report["splits"] == {"train": 30, "val": 10, "test": 20}
    assert {k: summary[k] for k in SPLITS} == report["splits"]
    assert report["groups"]["largest"] == {
        "hot": {"train": 30, "val": 10, "test": 0},
        "b.xyz": {"train": 0, "val": 0, "test": 20},
    }
    assert [s["frames"] for s in report["sources"]] == [40, 20]
    assert report["labels"]["stress"] == {"present": 60, "missing": 0}
    assert report["skipped"]["count"] == 0
    with SampleFile(run.data, "data") as samples:
        split = samples.read_column("split")
        assert split.dtype == np.int8
        assert np.bincount(split).tolist() == [30, 10, 20]
        assert set(samples.read_column("group")[:40]) == {"hot"}
        attributes = samples.attributes
    assert json.loads(attributes["labels"]) == ["energy", "forces", "stress"]
    assert json.loads(attributes["elements"]) == ["Al", "Cu"]
    references = json.loads(attributes["reference_energies"])
    assert references == report["reference_energies"]["energies"]


def test_bad_frames_are_skipped_and_listed(workshop, alloys):
    path = workshop.write("raw/a.xyz", alloys)
    lines = path.read_text().splitlines(keepends=True)
    lines[6 * 3 + 2] = lines[6 * 3 + 2].replace(".", "x", 1)  # frame 3
    lines[6 * 7 + 5] = " ".join([*lines[6 * 7 + 5].split()[:4], "nan nan nan\n"])  # frame 7
    path.write_text("".join(lines))
    run, summary = workshop.import_()
    assert summary["samples"] == 58
    assert summary["skipped"] == 2
    skipped = json.loads(run.report.read_text())["skipped"]
    assert skipped["first"][0].startswith(f"{path}: frame 3: ")
    assert skipped["first"][1] == f"{path}: frame 7: NaN in forces"
    assert sum(skipped["reasons"].values()) == 2
    with SampleFile(run.data, "data") as samples:
        assert not {"raw/a.xyz:3", "raw/a.xyz:7"} & set(samples.read_column("source"))
        assert np.isfinite(samples.read_column("forces")).all()


def test_a_partial_label_is_nan_where_it_is_missing(workshop, alloys):
    """A slab has no stress: its volume is a matter of taste, and so would be its stress."""
    slabs = [change_results(atoms) for atoms in alloys[30:45]]
    for slab in slabs:
        slab.pbc[2] = False
    without = [change_results(atoms, forces=None, stress=None) for atoms in alloys[45:]]
    workshop.write("raw/a.xyz", [*alloys[:30], *slabs])
    workshop.write("raw/b.xyz", without)
    message = r"stress is missing in 30 of 60 .*three periodic directions"
    with pytest.raises(ValueError, match=message):
        workshop.import_(partial=["forces"])
    run, _ = workshop.import_(partial=["forces", "stress"])
    with SampleFile(run.data, "data") as samples:
        stress, forces = samples.read_column("stress"), samples.read_column("forces")
        atoms = samples.count_rows("atom")
    assert np.isnan(stress).all(axis=(1, 2)).tolist() == [False] * 30 + [True] * 30
    assert np.isnan(forces).any(axis=1).sum() == np.isnan(forces[atoms[:45].sum() :]).all(1).sum()
    report = json.loads(run.report.read_text())
    assert report["labels"]["forces"] == {"present": 45, "missing": 15}
    assert report["labels"]["energy"] == {"present": 60, "missing": 0}


def test_moments_are_kept_without_their_sign(workshop, alloys):
    """An antiferromagnet with all spins reversed is the same structure with the same energy."""
    moments = np.array([3.0, -3.0, 0.5, -0.25])
    for atoms in (frames := [atoms.copy() for atoms in alloys]):
        atoms.arrays["magmoms"] = moments
        atoms.info["energy"] = 0.0
    workshop.write("raw/a.xyz", frames)
    run, _ = workshop.import_(labels=["energy", "magmoms"], reference_energies="none")
    with SampleFile(run.data, "data") as samples:
        np.testing.assert_array_equal(samples.read(0)["magmoms"], [3.0, 3.0, 0.5, 0.25])


@pytest.mark.slow
def test_frames_are_not_kept(workshop, alloys, monkeypatch):
    monkeypatch.setattr(Frame, "__hash__", object.__hash__)
    monkeypatch.setattr(Frame, "__eq__", object.__eq__)
    alive: weakref.WeakSet[Frame] = weakref.WeakSet()
    most = []

    def open_frames(*arguments):
        for frame in catalogue.open_frames(*arguments):
            alive.add(frame)
            most.append(len(alive))
            yield frame

    monkeypatch.setattr(frames_module, "open_frames", open_frames)
    monkeypatch.setattr(shards, "open_frames", open_frames)
    workshop.write("raw/a.xyz", alloys)
    gc.collect()
    assert workshop.import_()[1]["samples"] == len(most) == 60
    assert max(most) <= 3


def test_a_mixture_of_units_is_a_warning(workshop, alloys):
    others = [change_results(a, stress=1000 * a.get_stress(voigt=False)) for a in alloys[30:]]
    workshop.write("raw/a.xyz", [*alloys[:30], *others])
    _, summary = workshop.import_()
    assert summary["stress"] == ["undetermined"]
    assert any("are methods or units mixed?" in warning for warning in summary["warnings"])


def test_elements_that_occur_together_alone_are_told(workshop, alloys):
    alike = [atoms for atoms in alloys if (atoms.numbers == 13).sum() == 2]
    workshop.write("raw/a.xyz", alike)
    assert any("fixed proportions" in warning for warning in workshop.import_()[1]["warnings"])


def test_forces_that_no_energies_can_check_are_a_warning(workshop):
    rng = np.random.default_rng(3)
    workshop.write("raw/a.xyz", [make_alloy(rng, rattle=0.3) for _ in range(8)])
    _, summary = workshop.import_()
    (warning,) = [w for w in summary["warnings"] if w.startswith("forces of raw/*.xyz: ")]
    assert "their unit could not be checked against the energies (pairs of nearly equal" in warning
    assert "taken to be in eV/angstrom" in warning


def test_a_stress_that_no_strain_can_check_is_a_warning(workshop):
    rng = np.random.default_rng(3)
    frames = [make_alloy(rng, strain=0.0) for _ in range(12)]
    workshop.write("raw/a.xyz", frames)
    _, summary = workshop.import_()
    assert summary["stress"] == ["undetermined"]
    (warning,) = [w for w in summary["warnings"] if w.startswith("stress of raw/*.xyz: ")]
    assert "could not be checked against the energies (pairs of strained frames: 0" in warning
    assert "taken to be in eV/angstrom^3 with positive tension" in warning
    assert "strain of 0.0001 to 0.03" in warning
    _, without = workshop.import_(labels=["energy", "forces"])
    assert not any("stress" in warning for warning in without["warnings"])


def test_one_source_that_confirms_the_stress_speaks_for_others_of_its_format(workshop, alloys):
    rng = np.random.default_rng(3)
    workshop.write("raw/a.xyz", alloys)
    workshop.write("raw/still.xyz", [make_alloy(rng, strain=0.0) for _ in range(4)])
    still = {"path": "raw/still.xyz"}
    _, summary = workshop.import_(sources=[{"path": "raw/a.xyz"}, still])
    assert summary["stress"] == ["confirmed", "undetermined"]
    assert summary["warnings"] == []
    units = {"stress": "GPa"}
    _, summary = workshop.import_(sources=[{"path": "raw/a.xyz"}, {**still, "units": units}])
    assert "stress of raw/still.xyz: its sign" in summary["warnings"][-1]


def test_the_record_names_the_plugin_that_read_the_data(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    source = install(tmp_path, "lines", LINES)
    (tmp_path / "a.lines").write_text("")
    (tmp_path / "workflows/datasets").mkdir(parents=True)
    (tmp_path / "workflows/datasets/d.yaml").write_text(
        "description: d\nsources: [{path: ../../a.lines}]\nlabels: [energy]\n"
    )
    point = EntryPoint("lines", "lines_plugin", PROJECT)

    def identify():
        registry = load_registry([ATOMS, point], builtin=())
        run = Project(tmp_path / "workflows", tmp_path / "results", registry).load_dataset("d")
        return identify_readers(run)

    before = identify()
    assert list(before) == ["lines"]
    # The entry point is of no distribution.
    assert {key: before["lines"][key] for key in ("distribution", "plugin_version")} == {
        "distribution": "unknown", "plugin_version": "unknown"
    }  # fmt: skip
    source.write_text(source.read_text() + "\n# edited\n")
    assert identify()["lines"]["fingerprint"] != before["lines"]["fingerprint"]
    forget(tmp_path)
