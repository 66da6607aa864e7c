"""Artifacts of earlier versions mean what they meant, though options were renamed since."""

from __future__ import annotations

from typing import ClassVar

from pipeline_core.config.renamed import drop_removed, upgrade_options
from pipeline_core.config.sections import Section


class Sizes(Section):
    moved: ClassVar = {"breadth": "width", "cutoff": "graph.cutoff"}
    formerly: ClassVar = {"width": 1}
    width: int = 2
    depth: int = 3


def test_options_of_artifacts_get_their_new_names():
    """Experiments with the old ones are refused: `test_consistency.py`."""
    assert upgrade_options({"breadth": 4, "cutoff": 4.0}, Sizes) == {"width": 4}


def test_what_was_made_before_an_option_was_added_has_what_it_did_then():
    assert upgrade_options({"depth": 5}, Sizes) == {"width": 1, "depth": 5}
    assert upgrade_options({"width": 2}, Sizes) == {"width": 2}
    assert Sizes().width == 2  # of what is made today


def test_an_option_that_is_gone_counts_only_with_another_value_than_today():
    """In sections below, too, and a whole section that was not set."""
    removed = {"train.shots": 4, "train.optimizer.beta": 0.9, "train.smooth": None}
    stored = {"shots": 4, "smooth": None, "optimizer": {"lr": 0.1, "beta": 0.9}}
    assert drop_removed(stored, {}, removed, "train") == {"optimizer": {"lr": 0.1}}
    other = {"shots": 8, "smooth": {"time": 1.0}, "optimizer": {"beta": 0.8}}
    assert drop_removed(other, {}, removed, "train") == other
    now = {"optimizer": {"beta": 0.9}}  # gone of other optimizers only
    assert drop_removed(stored, now, removed, "train") == {"optimizer": {"lr": 0.1, "beta": 0.9}}


def test_an_option_of_the_entries_of_a_list_is_gone_from_each():
    removed = {"infer.cells.old": "a"}
    stored = {"cells": [{"name": "x", "old": "a"}, {"name": "y", "old": "b"}]}
    now = {"cells": [{"name": "x"}, {"name": "y"}]}
    kept = {"cells": [{"name": "x"}, {"name": "y", "old": "b"}]}
    assert drop_removed(stored, now, removed, "infer") == kept
    assert drop_removed(stored, {"cells": []}, removed, "infer") == stored  # they differ anyway
