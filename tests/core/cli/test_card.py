"""`pipeline-core card`; the oracle of what the data hold is ASE."""

import dataclasses
import json
from pathlib import Path

import ase.units
import numpy as np
import pytest
import torch

from pipeline_core.artifacts import store
from pipeline_core.evaluation.evaluate import evaluate_run
from pipeline_core.report.card import read_card, tabulate_card
from pipeline_core.task import build_task
from pipeline_core.training.model_file import load_model, write_model
from plugins.atoms.argon import REFERENCES, SCALE, list_splits, make_run, make_structures


@pytest.fixture
def run(folder):
    """A run whose model says where it comes from."""
    run = make_run(folder)
    options = run.dataset.options.model_copy(update={"licence": "CC0", "citation": "A | B"})
    run = dataclasses.replace(run, dataset=dataclasses.replace(run.dataset, options=options))
    weights, facts = load_model(run.model)["weights"], run.make_provenance("train")
    write_model(run, build_task(run), weights, ("train", np.arange(1)), facts)
    return run


def compute_density(atoms):
    """Return g/cm³."""
    gram, centimetre = 1e-3 * ase.units.kg, 1e-2 * ase.units.m
    return (atoms.get_masses().sum() / gram) / (atoms.get_volume() / centimetre**3)


def test_ranges_are_those_of_the_training_structures(run):
    frames = make_structures()
    train = [a for a, code in zip(frames, list_splits(len(frames)), strict=True) if code == 0]
    training = read_card(run.model)["card"]["training"]
    expected = {
        "atoms": [len(a) for a in train],
        "density": [compute_density(a) for a in train],
        "energy": [a.get_potential_energy() / len(a) for a in train],
        "pressure": [-a.get_stress()[:3].mean() / ase.units.GPa for a in train],
        "force": [f for a in train for f in np.linalg.norm(a.get_forces(), axis=1)],
    }
    assert training["ranges"].keys() == expected.keys()
    for name, values in expected.items():
        assert training["ranges"][name] == pytest.approx([min(values), max(values)], rel=1e-4)
    assert training["force_rms"] == pytest.approx(np.sqrt(np.square(expected["force"]).mean()))
    assert training["structures"] == len(train)
    assert training["groups"] == ["cold"]
    for symbol, n_atoms in training["atoms_by_element"].items():
        assert n_atoms == sum(a.symbols.count(symbol) for a in train)


@pytest.mark.slow
def test_the_page_says_errors_licence_and_limits(run, call):
    before = call("card", run.folder).output
    assert "## Errors" not in before
    evaluate_run(run)
    text = call("card", run.folder).output
    forces = np.concatenate([a.get_forces() for a in make_structures()[2::3]])
    error = 1000 * (SCALE - 1) * np.abs(forces).mean()
    line = next(line for line in text.splitlines() if line.startswith("| test | force "))
    assert float(line.split("|")[3].split()[0]) == pytest.approx(error, rel=5e-3)
    assert "| crystals | d | CC0 | A \\| B |" in text
    assert "| elements | Ar, Kr |" in text
    assert "| seed | 0 |" in text
    assert "g/cm³" in text
    assert all(str(energy) not in text for energy in REFERENCES.values())
    rows = dict(tabulate_card(run).rows)  # in the report
    assert rows["licence of crystals"] == "CC0"
    assert rows["cite for the model"] == "none"
    content = store.read_json(run.metrics)  # errors of another model are none of its own
    content["provenance"]["inputs"]["model"] = "0" * 32
    run.metrics.write_text(json.dumps(content))
    assert "## Errors" not in call("card", run.folder).output


@pytest.mark.slow
def test_a_copy_holds_the_whole_card_and_predicts_the_same(run, call):
    evaluate_run(run)
    result = call("card", run.folder, "--output", "card.md", "--copy", "given/away.pt")
    assert result.exit_code == 0, result.stderr
    assert call("card", "given/away.pt").output == Path("card.md").read_text()
    ours, theirs = (load_model(path)["weights"] for path in (run.model, Path("given/away.pt")))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours.keys() | theirs.keys())
    assert call("card", run.folder, "--copy", run.model).exit_code == 1
