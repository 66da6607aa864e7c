"""What does not belong together is refused by name, in every stage, and says what to run.

Oracle: the very fault, made by editing an experiment, a dataset file, a raw file or an artifact.
"""

import json
import os
import shutil
from dataclasses import replace

import h5py
import pytest
import torch
import yaml
from typer.testing import CliRunner

from core.faults.subjects import NAME, SECTIONS
from pipeline_atoms.calculators.loading import load_calculator
from pipeline_atoms.importing import dataset as importing
from pipeline_core.artifacts import store
from pipeline_core.artifacts.seals import identify
from pipeline_core.cli import app
from pipeline_core.evaluation import evaluate
from pipeline_core.evaluation.trained import load_trained_task
from pipeline_core.project.project import Project
from pipeline_core.testing.projects import call, write_project
from pipeline_core.training.model_file import load_model, save_archive

BY_HAND = f"--experiment {NAME} --variant base"
STAGES = ("graph", "partition", "train", "evaluate", "infer")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A project in which all stages have run, on which no test writes."""
    project = write_project(tmp_path_factory.mktemp("finished"), "chgnet", SECTIONS)
    run = replace(project.run(NAME), device="cpu")
    for stage in ("data", *STAGES):
        call(run, stage)
    return project


@pytest.fixture
def project(finished, tmp_path):
    """A copy of it that a test may spoil."""
    folder = tmp_path / "copy"
    shutil.copytree(finished.workflows.parent, folder)
    return Project(folder / "workflows", folder / "results", finished.registry)


def edit(project, **sections):
    path = project.workflows / f"experiments/{NAME}.yaml"
    content = yaml.safe_load(path.read_text())
    for section, change in sections.items():
        content[section] = content.get(section, {}) | change if type(change) is dict else change
    path.write_text(yaml.safe_dump(content))
    return replace(project.run(NAME), device="cpu")


def refused(run, stage):
    with pytest.raises(ValueError, match="make it new") as caught:
        call(run, stage)
    return str(caught.value)


pytestmark = pytest.mark.slow


def test_what_belongs_together_is_taken_again_with_the_same_identity(project):
    run = replace(project.run(NAME), device="cpu")
    before = {p: identify(p) for p in (run.graph, run.partition, run.data)}
    call(run, "evaluate")
    for stage in ("data", "graph", "partition"):
        call(run, stage)
    assert before == {p: identify(p) for p in before}
    path = project.workflows / "datasets/samples.yaml"
    content = yaml.safe_load(path.read_text())
    content["sources"][0]["keys"] = {name: name for name in ("energy", "stress", "forces")}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    for stage in ("data", "graph"):  # the order of keys does not count
        call(project.run(NAME), stage)


def load_by_hand(run):
    """Yield what Python can load a model by, without a stage."""
    yield lambda: load_trained_task(run, torch.device("cpu"))
    yield lambda: run.registry.select_hook("calculator", run.model_info.name)(run=run, device="cpu")


def test_a_model_is_checked_wherever_it_is_loaded(project):
    run = project.run(NAME)
    for load in (*load_by_hand(run), lambda: load_calculator(run.model)):
        load()
    later = edit(project, train={"epochs": 3})
    for load in load_by_hand(later):
        with pytest.raises(ValueError, match=r"made with train.epochs 2, now 3; make it new: pipe"):
            load()
    whole, facts, content = (
        run.model.read_bytes(),
        store.read_provenance(run.model),
        load_model(run.model),
    )
    save_archive(run.model, content | {"plugin": "mace"}, facts)
    for load in load_by_hand(run):
        with pytest.raises(ValueError, match=r"a model of the plugin 'mace', and not of 'chgnet'"):
            load()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for damaged in (flipped, whole[:-100]):
        run.model.write_bytes(damaged)
        for load in (*load_by_hand(run), lambda: load_calculator(run.model)):
            with pytest.raises(ValueError, match="damaged"):
                load()


def test_results_are_of_the_model_that_was_read_though_it_is_replaced_meanwhile(
    project, monkeypatch
):
    experiment = project.load_experiment(NAME)
    run = replace(experiment.runs["base"], device="cpu")
    before, predict = identify(run.model), evaluate.predict_samples

    def train_again(*args, **kwargs):
        content, facts = load_model(run.model), store.read_provenance(run.model)
        content["weights"] = {name: 1.01 * x for name, x in content["weights"].items()}
        save_archive(run.model, content, facts)
        return predict(*args, **kwargs)

    monkeypatch.setattr(evaluate, "predict_samples", train_again)
    call(run, "evaluate")
    assert identify(run.model) != before
    for path in (run.metrics, run.predictions):
        assert store.read_provenance(path)["inputs"]["model"] == before
    with pytest.raises(ValueError, match=rf"metrics.json: {run.model} has changed since; make it"):
        experiment.registry.select_hook("draw", "chgnet")(run=experiment)


def test_data_are_of_the_raw_file_that_was_read_though_it_is_replaced_meanwhile(
    project, monkeypatch
):
    """Also of a plugin that says where its data come from when it has read them."""
    dataset = project.load_dataset("samples")
    raw = project.workflows / "datasets/alloys.extxyz"
    digest = store.read_provenance(dataset.data)["inputs"]["alloys.extxyz"]
    made = []

    def read_first(run):
        raw.write_text(raw.read_text().replace("Cu", "Ag", 1))
        made.append(run.make_provenance()["inputs"])
        return {}

    monkeypatch.setattr(importing, "import_dataset", read_first)
    dataset.registry.select_hook("data", None)(run=dataset)
    assert made == [{"alloys.extxyz": "changed while it was read"}]
    assert dataset.make_provenance()["inputs"]["alloys.extxyz"] not in (digest, made[0])


def test_a_raw_file_that_was_replaced_with_its_time_kept(project):
    raw = project.workflows / "datasets/alloys.extxyz"
    times = raw.stat()
    text = raw.read_text()
    new = raw.with_suffix(".new")
    new.write_text(text.replace("Cu", "Ag", 1))
    os.utime(new, ns=(times.st_atime_ns, times.st_mtime_ns))
    new.replace(raw)
    message = refused(project.run(NAME), "train")
    assert "data.h5: raw file alloys.extxyz is new or has changed since the import" in message
    raw.write_text(text)
    call(project.run(NAME), "graph")  # the same content again
    run = project.run(NAME)
    with h5py.File(run.graph, "r+") as file:
        file.attrs["cutoff"] = 9.0  # as another program does
    with pytest.raises(ValueError, match=r"graph\.h5: .*(damaged|changed)"):
        call(run, "partition")


def test_verify_lists_all_faults_with_their_commands(project):
    runner, folders = CliRunner(), ["--workflows", str(project.workflows)]
    folders += ["--results", str(project.results)]
    result = runner.invoke(app, ["verify", *folders])
    assert result.exit_code == 0, result.output
    assert "none damaged or stale" in result.output
    run = edit(project, train={"epochs": 3})
    damaged = bytearray(run.graph.read_bytes())
    damaged[3000] ^= 1
    run.graph.write_bytes(damaged)
    result = runner.invoke(app, ["verify", "--json", *folders])
    assert result.exit_code == 1
    faults = {fault["path"]: fault for fault in json.loads(result.stdout)["faults"]}
    assert faults.keys() == {str(run.graph), str(run.model)}
    assert faults[str(run.graph)]["command"] == f"pipeline-core graph {BY_HAND}"
    assert "train.epochs 2, now 3" in faults[str(run.model)]["problem"]
    result = runner.invoke(app, ["verify", *folders])
    assert f"pipeline-core graph {BY_HAND}" in result.output
    assert "2 damaged or stale" in result.output


def test_torn_lines(project, caplog):
    from pipeline_core.figures import results

    run = project.run(NAME)
    records = results.read_records(run.folder)
    with (run.folder / "records.jsonl").open("a") as file:
        file.write('{"stage": "tra')
    assert results.read_records(run.folder) == records
    assert f"line {len(records) + 1}" in caplog.text
    run.history.write_text("{}\n")
    with pytest.raises(ValueError, match=r"history\.jsonl: line 1 is not a record of an epoch"):
        results.read_history(run)
