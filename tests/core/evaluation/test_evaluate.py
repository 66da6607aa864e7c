"""Oracle: ASE's Lennard-Jones calculator, scaled like the model, and NumPy's formulas."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.batch import count_samples
from pipeline_core.evaluation import evaluate
from pipeline_core.evaluation.evaluate import evaluate_run
from pipeline_core.fields import SPLITS
from pipeline_core.training.micro_batches import MicroBatch
from plugins.atoms.argon import (
    REFERENCES,
    SCALE,
    list_splits,
    load_run,
    make_run,
    make_structures,
)
from processes import finish

TESTS = Path(__file__).parents[2]


def evaluate_and_read(run):
    evaluate_run(run)
    return json.loads(run.metrics.read_text())


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A run that the stage has evaluated, and what it has said."""
    run = make_run(tmp_path_factory.mktemp("evaluated"))
    return run, run.registry.select_hook("evaluate", "argon")(run=run)


def select_split(atoms_list, split):
    return [
        a
        for a, s in zip(atoms_list, list_splits(len(atoms_list)), strict=True)
        if SPLITS[s] == split
    ]


def check(report, label, error):
    """Compare with the formulas of the textbook."""
    label, error = np.concatenate(label).ravel(), np.concatenate(error).ravel()
    assert report["count"] == len(label)
    assert report["mae"] == pytest.approx(np.abs(error).mean(), rel=1e-4)
    assert report["rmse"] == pytest.approx(np.sqrt((error**2).mean()), rel=1e-4)
    assert report["max_error"] == pytest.approx(np.abs(error).max(), rel=1e-4)
    assert report["label_mean_absolute"] == pytest.approx(np.abs(label).mean(), rel=1e-6)
    assert report["label_std"] == pytest.approx(label.std(), rel=1e-6)
    spread = ((label - label.mean()) ** 2).sum()
    assert report["r2"] == pytest.approx(1 - (error**2).sum() / spread, rel=1e-4)


def test_metrics_equal_those_of_ase_and_numpy(evaluated):
    run, summary = evaluated
    metrics = json.loads(run.metrics.read_text())
    assert metrics["n_parameters"] == 1
    assert metrics["plugin"] == "argon"
    assert metrics["fingerprint"] == run.registry.compute_fingerprint("argon")
    assert metrics["provenance"]["stage"] == "evaluate"
    assert summary["test"]["MAE forces"].endswith(" eV/Å")
    assert list(metrics["splits"]) == ["val", "test"]
    for split in ("val", "test"):
        atoms_list = select_split(make_structures(), split)
        report = metrics["splits"][split]
        assert report["n_samples"] == len(atoms_list) == 4
        energy = [np.array([a.get_potential_energy()]) for a in atoms_list]
        size = [len(a) for a in atoms_list]
        base = [np.array([sum(REFERENCES[s] for s in a.symbols)]) for a in atoms_list]
        forces = [a.get_forces() for a in atoms_list]
        wrong = SCALE - 1
        quantities = report["quantities"]
        check(quantities["energy"], np.add(energy, base), np.multiply(wrong, energy))
        check(
            quantities["energy_per_atom"],
            [(e + b) / n for e, b, n in zip(energy, base, size, strict=True)],
            [wrong * e / n for e, n in zip(energy, size, strict=True)],
        )
        check(quantities["forces"], forces, [wrong * f for f in forces])
        units = {"energy": "eV", "energy_per_atom": "eV/atom", "forces": "eV/Å", "stress": "eV/Å³"}
        assert {name: quantities[name]["unit"] for name in units} == units


@pytest.fixture
def little_memory(monkeypatch):
    """Returns what lets modules take no more than some samples at a time."""
    predict = MicroBatch.predict

    def limit(most):
        def run_out(self, module):
            if count_samples(self.batch) > most:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
            return predict(self, module)

        monkeypatch.setattr(MicroBatch, "predict", run_out)

    return limit


@pytest.mark.slow
def test_want_of_memory_is_named_with_a_cure_that_helps(tmp_path, little_memory):
    little_memory(2)
    with pytest.raises(ValueError, match=r"^out of memory in the prediction of") as caught:
        evaluate_run(make_run(tmp_path / "a"))
    words = str(caught.value)
    assert "samples 0 to 3 of the split on rank 0" in words
    (cost,) = re.findall(r"set partition\.capacity below (\S+), which they cost", words)
    evaluate_run(make_run(tmp_path / "b", partition={"capacity": 0.5 * float(cost)}))
    little_memory(0)
    run = make_run(tmp_path / "c", partition={"capacity": 1e-3})
    with pytest.raises(ValueError, match=r"samples 0 to 0 .* a single sample is too large: set"):
        evaluate_run(run)


def test_labels_and_predictions_stand_side_by_side(evaluated):
    codes = list_splits(12)
    order = [n for split in ("val", "test") for n in np.flatnonzero(codes == SPLITS.index(split))]
    with SampleFile(evaluated[0].predictions, "predictions") as file:
        assert len(file) == 8
        for row, number in enumerate(order):
            sample, atoms = file.read(row), make_structures()[number]
            base = sum(REFERENCES[s] for s in atoms.symbols)
            energy = atoms.get_potential_energy()
            assert SPLITS[int(sample["split"])] == SPLITS[codes[number]]
            assert str(sample["source"]) == f"argon.xyz:{number}"
            assert str(sample["group"]) == atoms.info["group"]
            assert np.array_equal(sample["atomic_numbers"], atoms.numbers)
            assert float(sample["energy_label"]) == pytest.approx(base + energy, abs=1e-9)
            predicted = float(sample["energy_predicted"])
            assert predicted == pytest.approx(base + SCALE * energy, abs=1e-6)
            assert np.allclose(sample["forces_label"], atoms.get_forces(), atol=1e-6)
            assert np.allclose(sample["forces_predicted"], SCALE * atoms.get_forces(), atol=1e-5)
            stress = atoms.get_stress(voigt=False)
            assert np.allclose(sample["stress_predicted"], SCALE * stress, atol=1e-6)
        assert file.fields["forces_predicted"].unit == "eV/Å"


@pytest.mark.slow
@pytest.mark.parametrize("capacity", [1.0, 700.0])
def test_the_size_of_windows_changes_nothing(tmp_path, capacity):
    # In double precision: an error is no more exact than the prediction that it is part of.
    whole, parts = (
        evaluate_and_read(
            make_run(tmp_path / name, partition={"capacity": limit}, dtype=torch.float64)
        )["splits"]
        for name, limit in (("whole", None), ("parts", capacity))
    )

    assert flatten_tree(parts) == pytest.approx(flatten_tree(whole), rel=1e-9)


def flatten_tree(tree, path=""):
    """Return the numbers of a nested report by their paths."""
    if isinstance(tree, dict):
        return {k: v for key in tree for k, v in flatten_tree(tree[key], f"{path}/{key}").items()}
    return {path: tree} if isinstance(tree, int | float) else {}


@pytest.mark.mpi
def test_two_ranks_give_the_metrics_and_the_file_of_one(tmp_path):
    run = make_run(tmp_path, partition={"capacity": 700.0})
    one = evaluate_and_read(run)
    arrays = read_all(run)
    run.metrics.unlink()
    run.predictions.unlink()

    finish(["-m", "plugins.atoms.argon", tmp_path], 2)

    assert json.loads(run.metrics.read_text())["splits"] == one["splits"]
    for name, values in read_all(run).items():
        assert np.array_equal(values, arrays[name]), name


def read_all(run):
    with SampleFile(run.predictions, "predictions") as file:
        return {name: file.read_column(name) for name in file.fields}


def test_what_cannot_be_evaluated_is_explained(tmp_path):
    atoms_list = make_structures(6)
    atoms_list[4].positions[1] = atoms_list[4].positions[0] + 1e-4  # overflows single precision
    run = make_run(tmp_path, atoms_list)  # number 4 is the second of the split val
    message = r"'energy' that is not finite between the samples 0 and 1"
    with pytest.raises(ValueError, match=message):
        evaluate_run(run)
    assert not run.predictions.exists()
    assert not run.metrics.exists()
    empty = make_run(tmp_path / "empty", make_structures(2), np.array([0, 0]))
    with pytest.raises(ValueError, match=r"evaluate.splits: no samples in val and test;"):
        evaluate_run(empty)


def test_a_model_without_labels_to_compare_with_is_explained(tmp_path, monkeypatch):
    run, load = make_run(tmp_path), evaluate.load_trained_task
    monkeypatch.setattr(
        evaluate, "load_trained_task", lambda *given: replace(load(*given), quantities=())
    )
    with pytest.raises(ValueError, match=r"no prediction of plugin 'argon' has labels"):
        evaluate_run(run)
    assert not run.predictions.exists()


def test_options_that_differ_from_those_of_the_training_are_noticed(tmp_path):
    make_run(tmp_path)
    path = tmp_path / "workflows/experiments/lj.yaml"
    content = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(content | {"model": {"predicts": ["energy"]}}))

    with pytest.raises(ValueError, match=r"does not reproduce the predictions"):
        evaluate_run(load_run(tmp_path))
