"""The rival of the paper: the gradient steps of the plugin as plain PyTorch takes them."""

from dataclasses import replace
from itertools import product

import pytest

from forked_ranks import train_by_command
from pipeline_htfbr.training import train_surface
from plugins.htfbr.conftest import make_points, make_project
from plugins.htfbr.fits import (
    SECTIONS,
    assert_close,
    assert_same_bits,
    evaluate_polynomial,
    read_result,
)
from tiers import exhaustive, run_first

MODELS = [{"rank": 4}, {"rank": 3, "leaf_rank": 2}]
FIRST = [({"batch_size": 32}, MODELS[0]), ({}, MODELS[1])]
RIVAL = {"method": "dataloader"}


def train(run):
    return run.registry.select_hook("train", "htfbr")(run=run)


@pytest.mark.slow
@pytest.mark.parametrize("case", run_first(product([{}, {"batch_size": 32}], MODELS), *FIRST))
def test_the_rival_takes_the_same_steps(fit, case):
    """The oracle is autograd through matrix products, fed by torch's DataLoader."""
    options, model = case
    ours, theirs = fit(options, "ours", model=model), fit(options | RIVAL, "theirs", model=model)
    summaries = [train_surface(ours), train(theirs)]
    assert_close(ours, theirs)
    assert summaries[0]["parameters"] == summaries[1]["parameters"]
    assert len(read_result(ours)[1]) == 4


@pytest.mark.slow
def test_four_and_four_epochs_equal_eight(fit):
    options = RIVAL | {"batch_size": 32}
    train(fit(options | {"epochs": 4}, "parts"))
    parts, whole = fit(options, "parts"), fit(options, "whole")
    train(parts)
    train(whole)
    assert_same_bits(parts, whole)


@exhaustive
@pytest.mark.mpi
@pytest.mark.slow
def test_two_ranks_follow_the_trajectory_of_one(tmp_path):
    data = make_points(evaluate_polynomial, 194)
    # The last step has one point.
    sections = SECTIONS | {"train": SECTIONS["train"] | RIVAL | {"batch_size": 43}}
    alone = replace(make_project(tmp_path / "alone", data, sections), device="cpu")
    train(alone)
    two = make_project(tmp_path / "two", data, sections)
    train_by_command(tmp_path / "two", "points", 2)
    assert_close(alone, two)


def test_a_rate_that_is_too_high_is_noticed_before_a_model_is_written(fit):
    run = fit(RIVAL | {"optimizer": {"lr": 1e20}, "precision": "32-true"})
    with pytest.raises(ValueError, match=r"diverged in epoch 2: the losses \((inf|nan)"):
        train(run)
    assert not run.model.exists()


def test_gradients_are_not_fitted(fit):
    with pytest.raises(ValueError, match=r"train\.gradient_weight: only methods 'solver' and"):
        train(fit(RIVAL | {"gradient_weight": 1.0}))


def test_other_methods_are_left_to_the_plugin(fit):
    run = fit({"epochs": 2})
    assert train(run)["parameters"] > 0
    assert run.model.exists()
