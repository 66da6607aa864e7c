"""Files of earlier versions load, are upgraded, predict and go on as they would have then.

An archive is what `make.py` made with the code of its version; the oracles are the numbers in it.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import archives
from pipeline_atoms.calculators.potentials import load_potential, make_file_run
from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.project.project import Project
from pipeline_core.project.run import Run
from pipeline_core.stages.builtin import load_registry
from pipeline_core.testing.projects import call
from pipeline_core.training.history import TIMES
from pipeline_core.training.model_file import load_archive, save_archive

FILES = sorted(Path(__file__).parent.glob("*.tar.xz"))
OF_THE_PROGRAM = {"provenance", "fingerprint", *TIMES}

of_all = pytest.mark.parametrize("archive", FILES, ids=lambda path: path.name)


def unpack(archive: Path, folder: Path, **train) -> Run:
    """Return the run of an archive, with options of its training."""
    archives.unpack(archive, folder)
    root = folder / "chgnet"
    path = root / "workflows/experiments/older.yaml"
    content = yaml.safe_load(path.read_text())
    content["train"] |= train
    path.write_text(yaml.safe_dump(content))
    run = Project(root / "workflows", root / "results", load_registry()).run("older")
    return replace(run, device="cpu")


def flatten_numbers(content, place=""):
    """Return the numbers of nested JSON by their place, without what differs from run to run."""
    if isinstance(content, dict):
        inner = {name: c for name, c in content.items() if name not in OF_THE_PROGRAM}
        parts = [flatten_numbers(c, f"{place}/{name}") for name, c in inner.items()]
    elif isinstance(content, list):
        parts = [flatten_numbers(c, f"{place}/{number}") for number, c in enumerate(content)]
    else:
        is_number = isinstance(content, int | float) and not isinstance(content, bool)
        return {place: content} if is_number else {}
    return {name: number for part in parts for name, number in part.items()}


@pytest.mark.slow
@of_all
def test_the_model_predicts_the_same(archive, tmp_path):
    run = unpack(archive, tmp_path)
    metrics = json.loads(run.metrics.read_text())
    with SampleFile(run.predictions, "predictions") as file:
        before = {name: file.read_column(name) for name in file.fields}
    run.metrics.unlink()
    run.predictions.unlink()
    call(run, "evaluate")
    expected, actual = (
        flatten_numbers(metrics),
        flatten_numbers(json.loads(run.metrics.read_text())),
    )
    assert len(expected) > 5
    assert {name: actual.get(name) for name in expected} == pytest.approx(expected, rel=1e-6)
    with SampleFile(run.predictions, "predictions") as file:
        for name, column in before.items():
            if column.dtype.kind == "f":
                same = pytest.approx(column, rel=1e-7, abs=1e-9, nan_ok=True)
                assert file.read_column(name) == same
    alone = load_potential(make_file_run(run.model, run.registry))
    assert set(alone.elements) == {"Ag", "Cu"}


@pytest.mark.slow
@of_all
def test_the_training_goes_on(archive, tmp_path, caplog):
    run = unpack(archive, tmp_path, epochs=4)
    path = run.state / "last.pt"
    state = load_archive(path, "")
    # Within a version a plugin that was edited since starts afresh.
    state["facts"]["plugin source"] = run.registry.compute_fingerprint("chgnet")
    save_archive(path, state, {})
    with caplog.at_level(logging.WARNING):
        call(run, "train")
    assert "afresh" not in caplog.text
    expected, actual = (
        [flatten_numbers(json.loads(line)) for line in path.read_text().splitlines()]
        for path in (tmp_path / "chgnet/longer.jsonl", run.history)
    )
    assert len(expected) == len(actual)
    for one, other in zip(expected, actual, strict=True):
        assert other == pytest.approx(one, rel=1e-6)
