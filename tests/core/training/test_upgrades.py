"""Models and states of an earlier version of a plugin: parameters under their new names."""

import logging
from dataclasses import replace

import pytest

import toy_potential as toy
from pipeline_core.model_info import Upgrade
from pipeline_core.task import build_task
from pipeline_core.training.model_file import check_probe, load_archive, load_model, save_archive
from pipeline_core.training.trainer import train_run
from records import assert_same_weights, read_weights

TRAIN = {"ema_decay": 0.9, "optimizer": {"name": "adamw", "lr": 1e-2}}


def rename_to_former(weights):
    return {name.replace("net.", "layers."): tensor for name, tensor in weights.items()}


def rename_to_present(weights):
    return {name.replace("layers.", "net."): tensor for name, tensor in weights.items()}


def rename_width(metadata):
    options = {**metadata["options"], "width": metadata["options"]["channels"]}
    del options["channels"]
    return {**metadata, "options": options}


def update_plugin(run):
    """Return a run whose plugin has changed since it wrote its files."""
    upgrades = {1: Upgrade(weights=rename_to_present, metadata=rename_width)}
    return replace(run, model_info=replace(run.model_info, version=2, upgrades=upgrades))


def test_a_model_of_an_earlier_version_predicts_the_same(tmp_path):
    run = toy.train(tmp_path)
    content = load_model(run.model)
    content["weights"] = rename_to_former(content["weights"])
    content["metadata"]["options"]["channels"] = content["metadata"]["options"].pop("width")
    save_archive(run.model, content, {})
    upgraded = load_model(run.model, update_plugin(run).model_info)
    assert upgraded["metadata"]["options"]["width"] == 8
    check_probe(build_task(run, upgraded["metadata"]).module, upgraded, run.model)
    with pytest.raises(ValueError, match="do not fit the module"):
        check_probe(build_task(run).module, load_model(run.model, run.model_info), run.model)


def test_a_model_of_a_later_version_is_refused_and_a_state_begun_anew(tmp_path, caplog):
    run = toy.make_run(tmp_path, {"epochs": 1})
    train_run(update_plugin(run))
    with pytest.raises(ValueError, match=r"the part of the plugin 'toy': of version 2"):
        load_model(run.model, run.model_info)
    train_run(toy.make_run(tmp_path, {"epochs": 2}))
    assert "last.pt: the part of the plugin 'toy': of version 2" in caplog.text
    assert "training starts afresh" in caplog.text


@pytest.mark.slow
def test_a_state_of_an_earlier_version_goes_on(tmp_path, caplog):
    run = toy.train(tmp_path / "parts", TRAIN | {"epochs": 2})
    path = run.state / "last.pt"
    state = load_archive(path, "")
    learner, progress = state["learner"], state["progress"]
    learner["module"], learner["average"] = map(
        rename_to_former, (learner["module"], learner["average"])
    )
    progress["best_weights"] = rename_to_former(progress["best_weights"])
    state["facts"]["plugin source"] = "another"
    save_archive(path, state, {})
    parts = update_plugin(toy.make_run(tmp_path / "parts", TRAIN | {"epochs": 4}))
    with caplog.at_level(logging.WARNING):
        train_run(parts)
    assert not caplog.records
    whole = toy.train(tmp_path / "whole", TRAIN | {"epochs": 4})
    assert_same_weights(read_weights(parts), read_weights(whole))
