"""The settings that readers ask for, from the sections of the variants."""

import pytest

from core.figures import synthetic
from pipeline_core.report import settings
from pipeline_core.report.variants import group_by_seed

TRAINED = """\
graph: {cutoff: 4.5}
train:
  epochs: 12
  batch_size: 8
  optimizer: {name: adamw, lr: 3.0e-4, lr_batch_size: 4}
  loss:
    energy: {kind: mse, weight: 2.0}
    forces: {kind: huber, weight: 10.0, delta: 0.05}
    stress: {weight: 0.0}
  clip_norm: 5.0
"""


def load(folder, more=""):
    path = folder / "workflows" / "experiments" / "toy" / "alloy.yaml"
    path.write_text(synthetic.EXPERIMENT.replace("variants:", f"{TRAINED}variants:") + more)
    return synthetic.load(folder)


@pytest.fixture
def tables(folder):
    experiment = load(folder, "  again: {seed: 8}\n  far: {graph: {cutoff: 6.0}}\n")
    return {table.title: table for table in settings.tabulate_settings(experiment)}


def test_what_readers_ask_for_comes_first(tables):
    rows = dict(tables["Settings"].rows)
    assert rows["Batch size"] == "8"
    assert rows["Optimizer"] == "adamw"
    assert rows["Learning rate"] == "0.0006"  # 3e-4 belongs to a batch of 4
    assert rows["Loss"] == "energy: mse, weight 2; forces: huber, weight 10, δ 0.05"
    assert rows["train.clip_norm"] == "5"
    assert list(rows).index("Learning rate") < list(rows).index("train.clip_norm")
    # Defaults are left out unless readers ask for them.
    assert rows["Precision"] == "32-true"
    assert not {"train.ema_decay", "train.optimizer.betas", "graph.isolated"} & set(rows)


def test_the_differences_are_a_table_of_their_own(folder, tables):
    table = tables["What differs"]
    assert table.header == ["setting", "base, again", "wide", "far"]
    assert ["Cutoff", "4.5 Å", "4.5 Å", "6 Å"] in table.rows
    assert ["model.width", "8", "16", "8"] in table.rows
    assert ["Seed", "7, 8", "7", "7"] in table.rows
    assert len(table.rows) == 3
    # A default is told where another variant has something else.
    experiment = load(folder, "  slow: {train: {ema_decay: 0.9, schedule: {name: cosine}}}\n")
    table = settings.tabulate_settings(experiment)[1]
    assert ["train.ema_decay", "none", "none", "0.9"] in table.rows
    assert ["Schedule", "constant", "constant", "cosine"] in table.rows


def test_a_variant_alone_has_no_table_of_differences(folder):
    path = folder / "workflows" / "experiments" / "toy" / "alloy.yaml"
    path.write_text(synthetic.EXPERIMENT.partition("variants:")[0])
    (table,) = settings.tabulate_settings(synthetic.load(folder))
    assert ["model.width", "8"] in table.rows
    assert ["Dataset", "alloy"] in table.rows


def test_defaults_of_a_training_that_the_engine_does_not_do_are_left_out(folder, monkeypatch):
    experiment = load(folder)
    group = group_by_seed(experiment)[0]
    train = type(group.runs[0].sections["train"])
    monkeypatch.setattr(train, "uses_shared_trainer", property(lambda self: False))
    said = settings.list_settings(group)
    assert "Precision" not in said
    assert said["Batch size"] == "8"
