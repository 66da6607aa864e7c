"""Artifacts of earlier versions mean what they meant, though options were renamed since."""

from __future__ import annotations

from typing import ClassVar

from pipeline_core.config.renamed import upgrade_options
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
