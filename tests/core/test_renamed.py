"""Experiments of earlier versions mean what they meant, and say once what to rename."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import pytest
import yaml

from pipeline_core.builtin import load_registry
from pipeline_core.config.renamed import OPTIONS, WORDS, Formerly, name_former, upgrade_options
from pipeline_core.config.sections import Section
from pipeline_core.project import Project

REGISTRY = load_registry()
OF_PLUGINS = [one for info in REGISTRY.list_models() for one in info.renamed]
VALUES = {
    "infer.workload": {"classes": 2},
    "infer.throughput": {"channels": [2]},
    "infer.partitions": {"parts": [2], "drawn": None},
    "infer.scaling": {"ranks": [1]},
}
"""A valid value of each option that has moved."""


def nest(keys, value):
    """Return {"a": {"b": value}} of "a.b"."""
    for key in reversed(keys.split(".")):
        value = {key: value}
    return value


def read_at(content, keys):
    for key in keys.split("."):
        content = content[key]
    return content


def write_experiment(folder: Path, plugin: str, **content) -> Path:
    path = folder / "experiments/old.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({"description": "Old", "plugin": plugin, **content}))
    return path


def load(folder: Path, variant: str = "base"):
    return Project(folder, folder / "results", REGISTRY).run("old", variant)


@pytest.mark.parametrize("option", [*OPTIONS, *OF_PLUGINS], ids=lambda option: option.old)
def test_a_moved_option_is_valid_where_it_stands_now(option, tmp_path, caplog):
    plugin = next((m.name for m in REGISTRY.list_models() if option in m.renamed), "mace")
    value = VALUES[option.old]
    path = write_experiment(tmp_path, plugin, **nest(option.old, value))
    with caplog.at_level(logging.WARNING):
        run = load(tmp_path)
        load(tmp_path)
    actual = read_at({k: s.model_dump(mode="json") for k, s in run.sections.items()}, option.new)
    assert {key: actual[key] for key in value} == value
    message = f"{path}: {option.old} is called {option.new} now; rename it"
    assert [record.getMessage() for record in caplog.records] == [message]


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.option)
@pytest.mark.parametrize("is_list", [False, True])
def test_a_renamed_word_is_read(word, is_list, caplog):
    value = ["random", word.old] if is_list else word.old
    path = Path(f"{word.option}-{is_list}.yaml")
    content = nest(word.option, value)
    actual = read_at(upgrade_options(content, (), path), word.option)
    assert actual == (["random", word.new] if is_list else word.new)
    assert read_at(content, word.option) == value
    assert f"{path}: {word.option}: {word.old} is called {word.new} now" in caplog.text


def test_workloads_measure_what_they_measured(tmp_path):
    projection = {"strategies": ["random", "paper"]}
    write_experiment(
        tmp_path,
        "mace",
        partition={"strategy": "paper"},
        infer={"md": [], "workload": {"repeats": 2, "projection": projection}},
        variants={"unmeasured": {"infer": {"workload": None}}},
    )
    profile = load(tmp_path).sections["profile"]
    assert (profile.samples, profile.repeats) == ([1, 2, 4, 8, 16, 32], 2)
    assert profile.projection.strategies == ["random", "mace_bins"]
    assert load(tmp_path).sections["partition"].strategy == "mace_bins"
    assert not load(tmp_path, "unmeasured").sections["profile"].has_work


@pytest.mark.parametrize("option", [*OPTIONS, *OF_PLUGINS], ids=lambda option: option.old)
def test_both_names_are_refused(option):
    content = nest(option.old, None)
    content["profile"] = {option.new.rpartition(".")[2]: {"samples": [1]}}
    with pytest.raises(ValueError, match=rf"old.yaml: {option.old} is called .* both are given"):
        upgrade_options(content, [option], Path("old.yaml"))


class Sizes(Section):
    width: Annotated[int, Formerly(1)] = 2
    depth: int = 3


def test_what_was_made_before_a_default_changed_has_the_former_one():
    """By hand. A file of the repository that is older than an option is in `test_evidence.py`."""
    assert name_former({"depth": 5}, Sizes) == {"width": 1, "depth": 5}
    assert name_former({"width": 2}, Sizes) == {"width": 2}
    assert Sizes().width == 2  # of what is made today
