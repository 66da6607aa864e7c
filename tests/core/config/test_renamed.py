"""Experiments of earlier versions mean what they meant, and say once what to rename."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, ClassVar

import pytest
import yaml

from pipeline_core.config.renamed import (
    OPTIONS,
    Formerly,
    drop_removed,
    name_former,
    upgrade_options,
)
from pipeline_core.config.sections import Section
from pipeline_core.project.project import Project
from pipeline_core.stages.builtin import load_registry

REGISTRY = load_registry()
RENAMED = [*OPTIONS, *(one for info in REGISTRY.list_models() for one in info.renamed)]


def load(folder: Path, variant: str = "base"):
    return Project(folder, folder / "results", REGISTRY).run("old", variant)


def test_workloads_measure_what_they_measured(tmp_path, caplog):
    """A moved option, and a renamed word alone and in a list: each is told once."""
    workload = {"repeats": 2, "projection": {"strategies": ["random", "paper"]}}
    content = {
        "partition": {"strategy": "paper"},
        "infer": {"md": [], "workload": workload},
        "variants": {"unmeasured": {"infer": {"workload": None}}},
    }
    path = tmp_path / "experiments/old.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump({"description": "Old", "plugin": "mace", **content}))
    with caplog.at_level(logging.WARNING):
        profile = load(tmp_path).sections["profile"]
    assert (profile.samples, profile.repeats) == ([1, 2, 4, 8, 16, 32], 2)
    assert profile.projection.strategies == ["random", "mace_bins"]
    assert load(tmp_path).sections["partition"].strategy == "mace_bins"
    assert not load(tmp_path, "unmeasured").sections["profile"].has_work
    assert sorted(record.getMessage() for record in caplog.records) == [
        f"{path}: infer.workload is called profile now; rename it",
        f"{path}: partition.strategy: paper is called mace_bins now; rename it",
        f"{path}: profile.projection.strategies: paper is called mace_bins now; rename it",
    ]


@pytest.mark.parametrize("option", RENAMED, ids=lambda option: option.old)
def test_an_option_has_one_name(option):
    section, _, key = option.old.partition(".")
    content = {section: {key: None}, "profile": {option.new.rpartition(".")[2]: {"samples": [1]}}}
    with pytest.raises(ValueError, match=rf"old.yaml: {option.old} is called .* both are given"):
        upgrade_options(content, [option], Path("old.yaml"))


class Sizes(Section):
    moved: ClassVar = {"cutoff": "graph.cutoff"}
    width: Annotated[int, Formerly(1)] = 2
    depth: int = 3


def test_what_was_made_before_a_default_changed_has_the_former_one():
    """By hand. A file of the repository that is older than an option is in `test_evidence.py`."""
    assert name_former({"depth": 5}, Sizes) == {"width": 1, "depth": 5}
    assert name_former({"width": 2}, Sizes) == {"width": 2}
    assert Sizes().width == 2  # of what is made today


def test_what_was_made_when_the_model_had_an_option_of_the_graph_is_read_without():
    assert name_former({"depth": 5, "cutoff": 4.0}, Sizes) == {"width": 1, "depth": 5}


def test_an_option_that_is_gone_counts_only_with_another_value_than_today():
    """In sections below, too, and a whole section that was not set."""
    removed = {"train.shots": 4, "train.optimizer.beta": 0.9, "train.smooth": None}
    stored = {"shots": 4, "smooth": None, "optimizer": {"lr": 0.1, "beta": 0.9}}
    assert drop_removed(stored, {}, removed, "train") == {"optimizer": {"lr": 0.1}}
    other = {"shots": 8, "smooth": {"time": 1.0}, "optimizer": {"beta": 0.8}}
    assert drop_removed(other, {}, removed, "train") == other
    now = {"optimizer": {"beta": 0.9}}  # gone of other optimizers only
    assert drop_removed(stored, now, removed, "train") == {"optimizer": {"lr": 0.1, "beta": 0.9}}
