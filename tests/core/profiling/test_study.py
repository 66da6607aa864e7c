"""From a trained model on disk to `profile.json`."""

from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from pipeline_core.cli import options
from pipeline_core.cli.app import app
from pipeline_core.figures import results
from pipeline_core.profiling.study import profile_run
from plugins.atoms.argon import make_run


@pytest.mark.slow
def test_training_steps_are_measured(tmp_path):
    network = {"alpha": 1e-5, "bandwidth": 1e9}
    link = {"latency": 1e-5, "bandwidth": 1e9}
    projection = {"network": link, "strong": [1, 4], "weak": [[2, 30]], "atoms_per_rank": 16.0}
    profile = {"samples": [1, 2, 4], "classes": 2, "repeats": 2, "projection": projection}
    run = make_run(
        tmp_path,
        codes=np.zeros(12, np.int8),
        train={"loss": {"energy": {}, "forces": {}}},
        profile=profile,
    )
    trained = run.model.read_bytes()
    summary = profile_run(run)

    study = results.read_profile(run)
    assert run.model.read_bytes() == trained
    assert study["device"] == "cpu"
    assert study["precision"] == "32-true"
    assert study["gradient_bytes"] == 4  # the potential has one parameter
    assert [(s["class_atoms"], s["samples"]) for s in study["steps"]] == [
        (atoms, copies) for atoms in (2, 8) for copies in (1, 2, 4)
    ]
    assert study["capacity"]["limited_by"] == "the largest batch tried"
    assert study["capacity"]["atoms"] == 4 * 8
    assert study["network"] == network | {"source": "given", "sizes": [], "seconds": []}
    assert [(p["mode"], p["ranks"], p["samples"]) for p in study["projection"][::2]] == [
        ("strong", 1, 12),
        ("strong", 4, 12),
        ("weak", 2, 30),
    ]
    for epoch in study["projection"]:
        parts = epoch["compute"] + epoch["communication"] + epoch["idle"]
        assert epoch["seconds"] == pytest.approx(parts)
    assert [g["class_atoms"] for g in study["growth"]] == [2, 8]
    assert "set" not in study  # the samples are those of the training
    assert summary["capacity_atoms"] == 32
    assert summary["seconds_of"].keys() == {"constant", "atom", "edge"}


@pytest.mark.parametrize(
    ("train", "split", "profile", "message"),
    [
        ({}, 0, {"samples": [1]}, r"train.loss names no field, so there is no training step"),
        ({"loss": {"energy": {}}}, 1, {"samples": [1]}, r"the split 'train' is empty"),
        ({}, 0, {}, r"profile.samples names no numbers of samples"),
    ],
)
def test_nothing_to_measure_is_explained(tmp_path, train, split, profile, message):
    codes = np.full(12, split, np.int8)
    run = make_run(tmp_path, codes=codes, train=train, profile=profile)
    with pytest.raises(ValueError, match=message):
        profile_run(run)
    assert not run.profile.exists()


@pytest.mark.slow
def test_the_command_measures_and_leaves_a_record(tmp_path, monkeypatch):
    run = make_run(
        tmp_path, train={"loss": {"energy": {}}}, profile={"samples": [1, 2], "classes": 1}
    )
    project = SimpleNamespace(run=lambda *_: run)  # with the plugin of this test
    monkeypatch.setattr(options, "load_project", lambda *_: project)
    result = CliRunner().invoke(app, ["profile", "--experiment", "lj", "--device", "cpu"])
    assert result.exit_code == 0, result.output
    assert "capacity_atoms" in result.output
    (record,) = results.read_records(run.folder)
    assert (record["stage"], record["ranks"]) == ("profile", 1)
    assert len(results.read_profile(run)["steps"]) == 2
