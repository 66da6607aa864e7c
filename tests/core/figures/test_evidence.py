"""Figures drawn from evidence are those of the results, and what differs is named."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from pipeline_core import store
from pipeline_core.builtin import load_registry
from pipeline_core.fields import SPLITS
from pipeline_core.figures import evidence, thinning
from pipeline_core.figures.drawing import draw_experiment
from pipeline_core.project import EVIDENCE, Project
from pipeline_core.samples import SampleFile
from pipeline_core.testing.projects import call, prepare, write_project

NAME = "chgnet/conformance"
WIDTHS = ("atom_features", "bond_features", "angle_features", "hidden_features")
SMALL = {
    "model": {**dict.fromkeys(WIDTHS, 8), "cutoff": 4.0},
    "graph": {"cutoff": 4.0, "angle_cutoff": 3.0},
    "evaluate": {"splits": ["train", "val", "test"]},
    "figures": {"formats": ["svg"]},
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


def test_figures_need_no_results(computed, project):
    assert evidence.list_evidence(project.workflows) == [NAME]
    experiment = evidence.load_evidence(NAME, project)
    draw_experiment(experiment)
    tables = sorted(path.name for path in experiment.folder.glob("*.csv"))
    assert "parity.csv" in tables
    for name in tables:
        assert (experiment.folder / name).read_bytes() == (computed / "drawn" / name).read_bytes()


def count_samples(path: Path) -> dict[str, int]:
    """Return how many predicted samples of each split a file has."""
    with SampleFile(path, "predictions") as file:
        codes = file.read_column("split")
        assert not {"group", "source"} & file.fields.keys()
    return {split: int((codes == code).sum()) for code, split in enumerate(SPLITS)}


def test_predictions_are_kept_as_far_as_figures_read_them(computed, project):
    runs = evidence.load_evidence(NAME, project).runs
    splits = dataclasses.replace(project, results=computed / "results").run(NAME).dataset
    counts = store.read_json(splits.report)["splits"]
    # Forces of the training samples are drawn of the first variant alone.
    assert count_samples(runs["base"].predictions) == counts
    assert count_samples(runs["other"].predictions) == {
        "train": 0,
        "val": 0,
        "test": counts["test"],
    }


def test_too_much_is_not_kept(computed, tmp_path, monkeypatch):
    folder = shutil.copytree(computed, tmp_path / "copy")
    project = Project(folder / "workflows", folder / "results", load_registry())
    monkeypatch.setattr(evidence, "MOST_BYTES", 1000)
    message = r"evidence of \d\.\d MB, at most 0 MB are kept, most of it \S+\.h5 of (base|other)"
    with pytest.raises(ValueError, match=message):
        evidence.keep_evidence(project.load_experiment(NAME), project)
    assert evidence.list_evidence(project.workflows) == []


def test_figures_that_read_more_than_is_kept_are_named(computed, tmp_path, monkeypatch):
    folder = shutil.copytree(computed, tmp_path / "copy")
    project = Project(folder / "workflows", folder / "results", load_registry())
    select = thinning._select_samples
    monkeypatch.setattr(thinning, "_select_samples", lambda *args: list(select(*args))[:-1])
    with pytest.raises(ValueError, match=r"parity\.svg.*drawn otherwise from evidence"):
        evidence.keep_evidence(project.load_experiment(NAME), project)


def test_data_that_are_imported_again_leave_the_evidence_of_others_as_it_is(computed, tmp_path):
    shutil.copytree(computed, tmp_path, dirs_exist_ok=True)
    project = Project(tmp_path / "workflows", tmp_path / "results", load_registry())
    run = project.load_experiment(NAME).runs["base"]
    kept = evidence.load_evidence(NAME, project).runs["base"].datasets[0].report
    before, records = kept.read_bytes(), kept.with_name("records.jsonl").read_bytes()
    content = store.read_json(run.datasets[0].report)
    content["provenance"] |= {"commit": "another", "fingerprint": "another"}
    store.write_json(run.datasets[0].report, content)
    run.datasets[0].report.with_name("records.jsonl").write_bytes(2 * records)
    evidence.keep_evidence(project.load_experiment(NAME), project)
    assert kept.read_bytes() == before
    assert kept.with_name("records.jsonl").read_bytes() == records
    assert evidence.check_evidence(NAME, project) == []


def test_nothing_differs_from_what_was_kept(project):
    assert evidence.check_evidence(NAME, project) == []
    assert not evidence.load_evidence(NAME, project).folder.exists()
    assert evidence.list_drift(NAME, project) == []


def test_an_altered_number_is_named(project):
    path = project.workflows / EVIDENCE / NAME / "base/history.jsonl"
    path.write_text(path.read_text().replace('"epoch": 2', '"epoch": 3'))
    assert evidence.check_evidence(NAME, project) == [f"{path}: not the file that was kept"]


def test_a_lost_file_is_named(project):
    path = project.workflows / EVIDENCE / NAME / "base/metrics.json"
    path.unlink()
    assert evidence.check_evidence(NAME, project) == [f"{path}: not the file that was kept"]


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


def test_a_figure_with_another_line_is_named(project, monkeypatch):
    from pipeline_core.figures import style

    choose = style.choose_colour
    monkeypatch.setattr(style, "choose_colour", lambda number: choose(number + 1))
    faults = [
        Path(fault.partition(":")[0]).name for fault in evidence.check_evidence(NAME, project)
    ]
    assert "learning.svg" in faults
    assert not [file for file in faults if not file.endswith(".svg")]


def test_figures_of_changed_code_are_drawn_again_on_request(project, monkeypatch):
    from pipeline_core.figures import learning

    home = project.workflows / EVIDENCE / NAME
    before = {p: p.read_bytes() for p in home.rglob("*") if p.is_file()}
    made = store.read_json(home / evidence.MANIFEST)
    make, get_hash = learning._make_table, evidence._hash
    monkeypatch.setattr(learning, "_make_table", lambda *args: make(*args)[:-1])
    monkeypatch.setattr(
        evidence, "_hash", lambda path: "other" if path.name == "perceptron.py" else get_hash(path)
    )
    for changed in (["learning.csv"], []):
        assert evidence.redraw_evidence(NAME, project) == changed
        assert evidence.check_evidence(NAME, project) == []
        # What the data were made by is still known.
        assert evidence.list_drift(NAME, project) == ["pipeline_chgnet/perceptron.py"]
    now = store.read_json(home / evidence.MANIFEST)
    assert now["sources_of_data"] == made["sources"] != now["sources"]
    assert now["made"] == made["made"]
    after = {p: p.read_bytes() for p in home.rglob("*") if p.is_file()}
    assert {p.name for p in after if after[p] != before.get(p)} == {evidence.MANIFEST}


def test_altered_evidence_is_not_drawn_again(project):
    path = project.workflows / EVIDENCE / NAME / "base/history.jsonl"
    path.write_text(path.read_text().replace('"epoch": 2', '"epoch": 3'))
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
    assert evidence.list_drift(NAME, project) == ["pipeline_chgnet/perceptron.py"]


def test_results_of_another_source_are_not_kept(computed, tmp_path, monkeypatch):
    folder = shutil.copytree(computed, tmp_path / "copy")
    registry = load_registry()
    project = Project(folder / "workflows", folder / "results", registry)
    monkeypatch.setattr(type(registry), "compute_fingerprint", lambda self, name: "another")
    with pytest.raises(ValueError, match="made by another source of plugin 'chgnet'"):
        evidence.keep_evidence(project.load_experiment(NAME), project)
