"""Trainings without gradient steps.

The oracle is what the fit did: the weights that it set, and the lines that it gave.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

import toy_potential
from forked_ranks import run_on_ranks
from pipeline_core.config.sections import GraphOptions
from pipeline_core.inference.potentials import make_file_run
from pipeline_core.store import read_provenance
from pipeline_core.task import build_task
from pipeline_core.training.checkpoint import check_probe, load_model
from pipeline_core.training.fits import fit_run

STEPS = (("rough", 0.5), ("fine", 0.25))


def fit(task):
    """Set all weights to 2, in two steps."""
    for value, (step, loss) in enumerate(STEPS, 1):
        with torch.no_grad():
            for parameter in task.module.parameters():
                parameter.fill_(value)
        yield {"step": step, "train": {"loss": loss}, "terms": value}


@pytest.fixture
def run(tmp_path):
    return toy_potential.make_run(tmp_path)


def test_the_weights_that_the_fit_has_set_are_the_model(run):
    summary = fit_run(run, fit)
    content = load_model(run.model, run.model_info)
    module = build_task(run, content["metadata"]).module
    assert all((content["weights"][name] == 2).all() for name, _ in module.named_parameters())
    check_probe(module, content, run.model)
    parameters = sum(p.numel() for p in module.parameters())
    assert (summary["steps"], summary["parameters"]) == (2, parameters)
    assert summary["seconds"] > 0


def test_each_step_is_a_line_of_the_history_and_is_told(run):
    run.history.parent.mkdir(parents=True, exist_ok=True)
    run.history.write_text("of an earlier training\n")
    toy_potential.EPOCHS_HEARD.clear()
    summary = fit_run(run, fit)
    lines = [json.loads(line) for line in run.history.read_text().splitlines()]
    assert [(line["epoch"], line["step"]) for line in lines] == [(1, "rough"), (2, "fine")]
    assert [line["train"]["loss"] for line in lines] == [loss for _, loss in STEPS]
    assert [line["terms"] for line in lines] == [1, 2]
    assert 0 < sum(line["seconds"] for line in lines) <= summary["seconds"]
    assert lines == toy_potential.EPOCHS_HEARD


def test_the_model_knows_its_history_and_what_it_was_made_from(run):
    fit_run(run, fit)
    facts = read_provenance(run.model)
    assert facts["stage"] == "train"
    assert facts["history"] is not None
    assert set(facts["inputs"]) == {"partition"}


def test_a_model_that_says_nothing_of_its_graph_has_the_defaults(run):
    fit_run(run, fit)
    found = make_file_run(run.model, run.registry)
    assert found.options == toy_potential.ToyOptions()
    assert found.sections["graph"] == GraphOptions()


def test_a_fit_that_says_nothing_leaves_an_empty_history(run):
    fit_run(run, lambda task: iter(()))
    assert run.history.read_text() == ""
    assert run.model.exists()


def test_want_of_memory_is_named_with_the_cure(run):
    def run_out(task):
        raise MemoryError

    with pytest.raises(ValueError, match=r"^out of memory in the fit of pairs: choose a smaller"):
        fit_run(run, run_out)
    assert not run.model.exists()


def test_a_split_without_training_samples_is_refused(tmp_path):
    run = toy_potential.make_run(tmp_path, model={"n_train": 0})
    with pytest.raises(ValueError, match="the split 'train' of its dataset is empty"):
        fit_run(run, fit)


@pytest.mark.mpi
def test_one_rank_of_several_fits_and_all_say_the_same(run, tmp_path):
    done = run_on_ranks("core.training.test_fits", [tmp_path], 2)
    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert first == second
    assert first["steps"] == 2
    assert read_provenance(run.model)["ranks"] == 2


if __name__ == "__main__":
    print(json.dumps(fit_run(toy_potential.load_run(Path(sys.argv[1])), fit)), flush=True)


def test_a_fit_has_no_budget_of_time(tmp_path):
    limited = toy_potential.make_run(tmp_path, {"minutes": 5})
    with pytest.raises(ValueError, match=r"train\.minutes: plugin 'toy' fits without steps"):
        fit_run(limited, lambda task: [])
