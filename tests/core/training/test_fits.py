"""Trainings without gradient steps.

The oracle is what the fit did: the weights that it set, and the lines that it gave.
"""

import json
import sys
from pathlib import Path

import pytest
import torch

import toy_potential
from forked_ranks import run_on_ranks
from pipeline_atoms.calculators.potentials import make_file_run
from pipeline_atoms.config.graph import GraphOptions
from pipeline_core.artifacts.store import read_provenance
from pipeline_core.task import build_task
from pipeline_core.training.fits import fit_run
from pipeline_core.training.model_file import check_probe, load_model
from records import read_history

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
    facts = read_provenance(run.model)
    assert facts["stage"] == "train"
    assert facts["history"] is not None
    assert set(facts["inputs"]) == {"partition"}
    found = make_file_run(run.model, run.registry)  # says nothing of its graph
    assert found.options == toy_potential.ToyOptions()
    assert found.sections["graph"] == GraphOptions()


def test_each_step_is_a_line_of_the_history_and_is_told(run):
    fit_run(run, lambda task: iter(()))  # says nothing
    assert run.history.read_text() == ""
    run.history.write_text("of an earlier training\n")
    toy_potential.EPOCHS_HEARD.clear()
    summary = fit_run(run, fit)
    lines = read_history(run)
    assert [(line["epoch"], line["step"]) for line in lines] == [(1, "rough"), (2, "fine")]
    assert [line["train"]["loss"] for line in lines] == [loss for _, loss in STEPS]
    assert [line["terms"] for line in lines] == [1, 2]
    assert 0 < sum(line["seconds"] for line in lines) <= summary["seconds"]
    assert lines == toy_potential.EPOCHS_HEARD


def test_fits_that_cannot_be_are_refused(tmp_path):
    def run_out(task):
        raise MemoryError

    for fitting, train, model, message in (
        (run_out, {}, {}, r"^out of memory in the fit of pairs: choose a smaller"),
        (fit, {}, {"n_train": 0}, "the split 'train' of its dataset is empty"),
        (fit, {"minutes": 5}, {}, r"train\.minutes: plugin 'toy' fits without steps"),
    ):
        run = toy_potential.make_run(tmp_path, train, model=model)
        with pytest.raises(ValueError, match=message):
            fit_run(run, fitting)
        assert not run.model.exists()


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
