"""Errors against labels. Oracle: numbers written into the files by hand."""

import json

import pytest

from pipeline_atoms.active_learning import learning_curve
from pipeline_atoms.active_learning.round import find_round
from pipeline_core.figures import style
from plugins.atoms.active_learning.test_rounds import LEARN, load


def write_errors(run, mae):
    quantity = {"count": 9, "mae": mae, "rmse": mae, "r2": 0.9, "label_mean_absolute": 1.0}
    table = {"forces": {**quantity, "unit": "eV/Å"}}
    content = {"splits": {"test": {"n_samples": 3, "quantities": table}}}
    run.folder.mkdir(parents=True, exist_ok=True)
    run.metrics.write_text(json.dumps(content))


def test_means_over_members_stand_at_the_structures_trained_on(tmp_path):
    experiment = load(tmp_path, learn=LEARN | {"rounds": 1})
    errors = {"base": 0.5, "base.2": 0.7, "round_1": 0.2, "round_1.2": 0.4, "random_1": 0.45}
    for variant, mae in errors.items():
        run = experiment.runs[variant]
        write_errors(run, mae)
        n_train = 10 if variant.startswith("base") else 13
        run.dataset.report.parent.mkdir(parents=True, exist_ok=True)
        run.dataset.report.write_text(json.dumps({"splits": {"train": n_train}}))
        if variant == "base":  # nothing is drawn before a round is evaluated
            assert learning_curve.draw(experiment) is None
    picks = find_round(experiment.runs["round_1"]).report
    picks.write_text(json.dumps({"largest_spread": 1.25}))
    with style.apply_style():
        _, table = learning_curve.draw(experiment)
    head, *rows = table
    assert head[-2:] == ["forces_mae_meV_per_A", "largest_spread_eV_per_A"]
    shown = [(row[1], row[2], row[-2], row[-1]) for row in rows]
    assert shown == [
        ("base", 10, pytest.approx(600), None),
        ("round_1", 13, pytest.approx(300), 1.25),
        ("base", 10, pytest.approx(600), None),
        ("random_1", 13, pytest.approx(450), None),
    ]
