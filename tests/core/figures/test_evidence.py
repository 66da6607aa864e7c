"""Figures drawn from evidence are those of the results, and what differs is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pipeline_core.artifacts import store
from pipeline_core.artifacts.extracts import BULK, Extracts, shorten
from pipeline_core.figures import archives, evidence
from pipeline_core.project.project import Project
from pipeline_core.report.experiment import draw_experiment
from pipeline_core.stages.builtin import load_registry
from pipeline_core.testing.projects import call, prepare, write_project

NAME = "chgnet/conformance"
WIDTHS = ("atom_features", "bond_features", "angle_features", "hidden_features")
SMALL = {
    "model": dict.fromkeys(WIDTHS, 8),
    "graph": {"cutoff": 4.0, "angle_cutoff": 3.0},
    "evaluate": {"splits": ["train", "val", "test"]},
    "figures": {"formats": ["svg"], "names": ["parity", "errors_by_force", "learning"]},
    "variants": {"other": {"train": {"epochs": 1}}},
}


@pytest.fixture(scope="module")
def computed(tmp_path_factory) -> Path:
    """A folder with results and evidence."""
    folder = tmp_path_factory.mktemp("evidence") / "project"
    project = write_project(folder, "chgnet", SMALL)
    experiment = project.load_experiment(NAME)
    prepare(experiment.runs["base"])
    for run in experiment.runs.values():
        for stage in ("train", "evaluate", "infer"):
            call(run, stage)
    draw_experiment(experiment)
    shutil.copytree(experiment.folder, folder / "drawn")
    evidence.keep_evidence(experiment, project)
    return folder


@pytest.fixture
def project(computed, tmp_path) -> Project:
    """A fresh clone with evidence and without results."""
    shutil.copytree(computed / "workflows", tmp_path / "workflows")
    return Project(tmp_path / "workflows", tmp_path / "results", load_registry())


@pytest.mark.slow
def test_figures_need_no_results(computed, project):
    assert evidence.list_evidence(project.workflows) == [NAME]
    experiment = evidence.load_evidence(NAME, project)
    draw_experiment(experiment)
    tables = sorted(path.name for path in experiment.folder.glob("*.csv"))
    assert "parity.csv" in tables
    for name in tables:
        assert (experiment.folder / name).read_bytes() == (computed / "drawn" / name).read_bytes()


def read_manifest(project: Project) -> dict:
    return store.read_json(evidence._find_manifest(project.find_evidence(NAME)))


def alter(project: Project, name: str, old: str | None = None, new: str = "") -> str:
    """Replace a text in a file of the archive, or the file by none; return the fault."""
    path = project.find_evidence(NAME)
    folder = path.with_name("altered")
    shutil.copytree(archives.unpack_archive(path), folder)
    file = folder / name
    if old is None:
        file.unlink()
    else:
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))
    archives.write_archive(folder, path)
    return f"{path}: {name}: not the file that was kept"


def test_predictions_are_kept_as_far_as_figures_draw_them(project):
    run = evidence.load_evidence(NAME, project).runs["base"]
    assert not run.predictions.exists()
    assert not run.partition.exists()
    content = json.loads((run.folder.parent / "extracts.json").read_text())
    assert {"base/errors_by_force", "other/errors_by_force"} <= content.keys()
    with pytest.raises(ValueError, match=r"no extract 'base/another'.*reads what was not kept"):
        run.extract("another", lambda: None)


def test_extracts_are_read_as_they_were_collected(tmp_path):
    collected = Extracts()
    rng = np.random.default_rng(0)
    small = np.arange(4, dtype=np.int8)
    arrays = {"b": rng.normal(size=(3, 2)), "a": small, "none": np.empty((0, 3))}
    content = {"arrays": arrays, "rest": [1, 0.1, None, "word", True]}
    assert collected.get("one", lambda: content) is content
    collected.write(tmp_path / "extracts.json")
    kept = Extracts(tmp_path / "extracts.json").get("one", dict)
    assert kept["rest"] == content["rest"]
    assert list(kept["arrays"]) == list(arrays)  # figures draw in this order
    for name, array in arrays.items():
        assert kept["arrays"][name].dtype == array.dtype
        np.testing.assert_array_equal(kept["arrays"][name], array)


def test_numbers_are_shortened_to_their_first_digits():
    values = np.array([[123456.0, -0.00123456], [0.0, 1.0]])
    np.testing.assert_array_equal(shorten(values, 3), [[123000.0, -0.00123], [0.0, 1.0]])


def test_archives_of_the_same_files_are_the_same(tmp_path):
    texts = {"b": "second", "folder/a": "first"}
    (tmp_path / "files/folder").mkdir(parents=True)
    for name in ("one", "two"):
        for file, text in texts.items():
            (tmp_path / "files" / file).write_text(text)
        archives.write_archive(tmp_path / "files", tmp_path / f"{name}.tar.xz")
    assert (tmp_path / "one.tar.xz").read_bytes() == (tmp_path / "two.tar.xz").read_bytes()
    files = archives.list_files(archives.unpack_archive(tmp_path / "one.tar.xz"))
    assert {name: path.read_text() for name, path in files.items()} == texts


def test_a_damaged_archive_is_named(project):
    path = project.find_evidence(NAME)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"conformance\.tar\.xz: damaged .*restore it"):
        evidence.check_evidence(NAME, project)


def test_what_is_marked_as_bulk_is_left_out(tmp_path):
    source, target = tmp_path / "source.h5", tmp_path / "target.h5"
    with store.create(source, "inference", {"seed": 1}) as file:
        file["run/energy"] = np.arange(3.0)
        file["run/positions"] = np.zeros((3, 2))
        file["run/positions"].attrs[BULK] = True
        file["series/first"] = np.zeros(3)
        file["series"].attrs.update({BULK: True, "report": "kept"})
    archives.copy_artifact(source, target)
    assert store.read_provenance(target) == {"seed": 1}
    with store.open_artifact(target, "inference") as file:
        names: list[str] = []
        file.visit(names.append)
        assert names == ["run", "run/energy", "series"]
        assert file["series"].attrs["report"] == "kept"
        np.testing.assert_array_equal(file["run/energy"], [0, 1, 2])
    content = {BULK: ["atoms"], "atoms": [1, 2], "seconds": 3}
    store.write_json(tmp_path / "source.json", content)
    archives.copy_artifact(tmp_path / "source.json", tmp_path / "target.json")
    assert store.read_json(tmp_path / "target.json") == {BULK: ["atoms"], "seconds": 3}


@pytest.mark.slow
def test_too_much_is_not_kept(computed, tmp_path, monkeypatch):
    folder = shutil.copytree(computed, tmp_path / "copy")
    project = Project(folder / "workflows", folder / "results", load_registry())
    monkeypatch.setattr(evidence, "MOST_BYTES", 1000)
    before = project.find_evidence(NAME).read_bytes()
    message = r"evidence of \d\.\d MB, at most 0 MB are kept, most of it chgnet/\S+ \(\d\.\d MB"
    with pytest.raises(ValueError, match=message):
        evidence.keep_evidence(project.load_experiment(NAME), project)
    assert project.find_evidence(NAME).read_bytes() == before


@pytest.mark.slow
def test_figures_that_read_more_than_is_kept_are_named(computed, tmp_path, monkeypatch):
    folder = shutil.copytree(computed, tmp_path / "copy")
    project = Project(folder / "workflows", folder / "results", load_registry())
    read = Extracts.get

    def lose_parity(self, name, compute):
        is_lost = self.path is not None and name.startswith("parity of ")
        return {} if is_lost else read(self, name, compute)

    monkeypatch.setattr(Extracts, "get", lose_parity)
    with pytest.raises(ValueError, match=r"parity\.csv.*drawn otherwise from evidence"):
        evidence.keep_evidence(project.load_experiment(NAME), project)


@pytest.mark.slow
def test_nothing_differs_from_what_was_kept(project):
    assert evidence.check_evidence(NAME, project) == []
    assert not evidence.load_evidence(NAME, project).folder.exists()
    assert evidence.list_drift(NAME, project) == []


def test_an_altered_number_is_named(project):
    fault = alter(project, f"{NAME}/base/history.jsonl", '"epoch": 2', '"epoch": 3')
    assert evidence.check_evidence(NAME, project) == [fault]


def test_a_lost_file_is_named(project):
    fault = alter(project, f"{NAME}/base/metrics.json")
    assert evidence.check_evidence(NAME, project) == [fault]


@pytest.mark.slow
def test_a_figure_that_comes_out_otherwise_is_named(project, monkeypatch):
    from pipeline_core.figures import learning

    make = learning._make_table
    monkeypatch.setattr(learning, "_make_table", lambda *args: make(*args)[:-1])
    folder = evidence.load_evidence(NAME, project).folder
    assert evidence.check_evidence(NAME, project) == [
        f"{folder / 'learning.csv'}: not what was drawn from the same evidence"
    ]
    assert (folder / "learning.svg").is_file()


@pytest.mark.parametrize(
    ("text", "elsewhere", "changed"),
    [
        (
            "a,0.1\nb,-2.5e-07\n",
            "a,0.09999999999999999\nb,-2.5000000000000004e-07\n",
            "0.11",
        ),
        (
            '<a href="#p0a1b2c3d4e"/> M 1.5 2',
            '<a href="#pffffffffff"/> M 1.4999999 2',
            "1.6",
        ),
        ('{"ours": 12.345}', '{"ours": 12.345000000000002}', "12.347"),
    ],
)
def test_digits_that_depend_on_the_processor_do_not_count(text, elsewhere, changed):
    digest = evidence.digest_drawn
    number = next(n for n in ("0.1", "1.5", "12.345") if n in text)
    assert digest(text) == digest(elsewhere)
    assert digest(text) != digest(text.replace(number, changed, 1))


@pytest.mark.slow
def test_a_figure_with_another_line_is_named(project, monkeypatch):
    from pipeline_core.figures import style

    choose = style.choose_colour
    monkeypatch.setattr(style, "choose_colour", lambda number: choose(number + 1))
    faults = [
        Path(fault.partition(":")[0]).name for fault in evidence.check_evidence(NAME, project)
    ]
    assert "learning.svg" in faults
    assert not [file for file in faults if not file.endswith(".svg")]


@pytest.mark.slow
def test_figures_of_changed_code_are_drawn_again_on_request(project, monkeypatch):
    from pipeline_core.figures import learning

    before = project.find_evidence(NAME).read_bytes()
    made = read_manifest(project)
    make, get_hash = learning._make_table, evidence._hash
    monkeypatch.setattr(learning, "_make_table", lambda *args: make(*args)[:-1])
    monkeypatch.setattr(
        evidence, "_hash", lambda path: "other" if path.name == "perceptron.py" else get_hash(path)
    )
    for changed in (["learning.csv"], []):
        assert evidence.redraw_evidence(NAME, project) == changed
        # What the data were made by is still known.
        assert evidence.list_drift(NAME, project) == ["pipeline_chgnet/model/perceptron.py"]
    assert evidence.check_evidence(NAME, project) == []
    now = read_manifest(project)
    assert now["sources_of_data"] == made["sources"] != now["sources"]
    assert now["made"] == made["made"]
    assert project.find_evidence(NAME).read_bytes() == before


def test_altered_evidence_is_not_drawn_again(project):
    alter(project, f"{NAME}/base/history.jsonl", '"epoch": 2', '"epoch": 3')
    with pytest.raises(ValueError, match=r"base/history\.jsonl: not the file that was kept"):
        evidence.redraw_evidence(NAME, project)


def test_evidence_of_other_options_is_not_drawn_again(project):
    path = project.workflows / f"experiments/{NAME}.yaml"
    path.write_text(path.read_text().replace("epochs: 2", "epochs: 3"))
    with pytest.raises(ValueError, match=r"base: made with train\.epochs 2, now 3"):
        evidence.redraw_evidence(NAME, project)


def test_options_that_have_changed_make_it_stale(project):
    path = project.workflows / f"experiments/{NAME}.yaml"
    path.write_text(path.read_text().replace("epochs: 2", "epochs: 3"))
    (fault,) = evidence.check_evidence(NAME, project)
    assert "base: made with train.epochs 2, now 3" in fault


def test_code_that_has_drifted_is_named(project, monkeypatch):
    from pipeline_core.figures.evidence import _hash

    monkeypatch.setattr(
        evidence, "_hash", lambda path: "other" if path.name == "perceptron.py" else _hash(path)
    )
    assert evidence.list_drift(NAME, project) == ["pipeline_chgnet/model/perceptron.py"]


def test_results_of_another_source_are_not_kept(computed, tmp_path, monkeypatch):
    folder = shutil.copytree(computed, tmp_path / "copy")
    registry = load_registry()
    project = Project(folder / "workflows", folder / "results", registry)
    monkeypatch.setattr(type(registry), "compute_fingerprint", lambda self, name: "another")
    with pytest.raises(ValueError, match="made by another source of plugin 'chgnet'"):
        evidence.keep_evidence(project.load_experiment(NAME), project)
