"""Working folders: made, and upgraded without loss of what users have edited."""

import json

import pytest

from pipeline_atoms.readers import Frame, cp2k
from pipeline_core.project import working_folder
from pipeline_core.project.project import Project
from pipeline_core.project.working_folder import NOTE, find_template, make_folder, upgrade_folder
from pipeline_core.stages.builtin import load_registry
from pipeline_core.workflow.rules import Plan

EXAMPLE = "htfbr/smoke"
RULE = "workflows/rules/train.smk"


@pytest.fixture(scope="module")
def registry():
    return load_registry()


@pytest.fixture
def folder(tmp_path, registry):
    make_folder(tmp_path / "new", [EXAMPLE], registry)
    return tmp_path / "new"


def edit_note(folder, **values):
    note = json.loads((folder / NOTE).read_text())
    (folder / NOTE).write_text(json.dumps(note | values))


def pretend_older(folder, name, text):
    """Let a file be as another version of the package would have written it."""
    path = folder / name
    path.write_text(text)
    files = json.loads((folder / NOTE).read_text())["files"]
    edit_note(folder, files=files | {name: working_folder._hash(text.encode())})


@pytest.mark.slow
def test_a_folder_holds_what_a_run_needs(tmp_path, registry):
    folder = tmp_path / "new"
    make_folder(folder, ["chgnet/hfo2"], registry)
    project = Project(folder / "workflows", folder / "results", registry)
    experiment = project.load_experiment("chgnet/hfo2")
    raw = [p for run in experiment.runs.values() for p in run.dataset.find_raw_files().values()]
    assert len(raw) > 1
    assert (folder / "workflows/datasets/hfo2/README.md").exists()  # where they come from
    assert all(path.is_relative_to(folder) for path in raw)
    assert all(isinstance(next(cp2k.read(path, {})), Frame) for path in raw[:3])
    assert (folder / "slurm/profile.yaml").read_bytes() == (
        find_template() / "profiles/slurm/profile.yaml"
    ).read_bytes()


def test_what_is_there_is_not_overwritten(tmp_path, folder, registry):
    (folder / "Snakefile").write_text("mine")
    with pytest.raises(ValueError, match=r"Snakefile: exists already; .* `init --upgrade`"):
        make_folder(folder, [EXAMPLE], registry)
    assert (folder / "Snakefile").read_text() == "mine"
    other = tmp_path / "other"
    with pytest.raises(ValueError, match=r"experiments/chgnet/nothing\.yaml"):
        make_folder(other, ["chgnet/nothing"], registry)
    assert not other.exists()
    (other / "workflows").mkdir(parents=True)
    (other / "workflows/config.yaml").write_text("mine")
    with pytest.raises(ValueError, match=r"config.yaml: exists already; choose another folder$"):
        make_folder(other, [EXAMPLE], registry)
    assert not (other / "Snakefile").exists()


def test_beside_a_configuration_the_files_of_the_engine_are_written_alone(tmp_path, registry):
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows/config.yaml").write_text("experiments: [mine/first]")
    assert working_folder.has_configuration(tmp_path)
    make_folder(tmp_path, [], registry)
    assert (tmp_path / "workflows/config.yaml").read_text() == "experiments: [mine/first]"
    written = {path.name for path in (tmp_path / "workflows").iterdir()}
    assert written == {"config.yaml", "rules", "report"}
    assert (tmp_path / "Snakefile").exists()
    assert upgrade_folder(tmp_path) == []


def test_an_upgrade_brings_what_is_new_and_keeps_what_is_edited(folder):
    template = find_template()
    pretend_older(folder, RULE, "rule train: # older")
    pretend_older(folder, "workflows/rules/gone.smk", "rule gone:")
    pretend_older(folder, "workflows/rules/mine.smk", "rule gone:")
    (folder / "workflows/rules/mine.smk").write_text("rule mine:")
    pretend_older(folder, "profiles/slurm/profile.yaml", "jobs: 1")
    (folder / "profiles/slurm/profile.yaml").write_text("jobs: 7")
    (folder / "workflows/config.yaml").write_text("experiments: []")
    edited = "edited   profiles/slurm/profile.yaml: kept; the new one is profile.yaml.new"
    removed = "removed  workflows/rules/gone.smk"
    assert upgrade_folder(folder) == [f"upgraded {RULE}", edited, removed]
    assert (folder / RULE).read_bytes() == (template / RULE).read_bytes()
    assert (folder / "profiles/slurm/profile.yaml").read_text() == "jobs: 7"
    assert "executor: slurm" in (folder / "profiles/slurm/profile.yaml.new").read_text()
    assert not (folder / "workflows/rules/gone.smk").exists()
    assert (folder / "workflows/rules/mine.smk").read_text() == "rule mine:"
    assert (folder / "workflows/config.yaml").read_text() == "experiments: []"
    assert upgrade_folder(folder) == [edited]


def test_an_older_folder_works_on_and_is_told(folder, registry, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    edit_note(folder, schema_version=0)
    assert Plan({"experiments": [EXAMPLE]}, registry).papers == ["htfbr"]
    assert "`pipeline-core init --upgrade`" in capsys.readouterr().err
    upgrade_folder(folder)
    Plan({"experiments": [EXAMPLE]}, registry)
    assert capsys.readouterr().err == ""


def test_a_newer_folder_is_refused_with_the_package_that_it_needs(folder, registry, monkeypatch):
    monkeypatch.chdir(folder)
    edit_note(folder, schema_version=working_folder.SCHEMA + 1, version="7.0")
    with pytest.raises(SystemExit, match=r"^error: .*pip install 'pipeline-core>=7.0'"):
        Plan({"experiments": [EXAMPLE]}, registry)


@pytest.mark.parametrize("text", ["", "[]", '{"schema_version": "x"}'])
def test_a_damaged_note_is_named(folder, text):
    (folder / NOTE).write_text(text)
    with pytest.raises(ValueError, match=rf"{NOTE}: damaged"):
        upgrade_folder(folder)
    with pytest.raises(ValueError, match="a clone is by git"):
        upgrade_folder(find_template())
