"""The table at the end of a run of pytest. Oracle: pytest's own count."""

from __future__ import annotations

import re

import pytest

from pipeline_core.testing.plugin import ConformanceTable
from processes import start

SUITE = """
import pytest
from pipeline_core.testing import PluginConformance

class TestRight(PluginConformance):
    plugin = "mace"

    def test_it_is_skipped(self):
        pytest.skip("for a reason")

class TestUnknown(PluginConformance):
    plugin = "no_such"

def test_of_something_else():
    pass
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """What pytest says of the suite."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "test_suite.py").write_text(SUITE)
    words = ["-m", "pytest", "-p", "no:cacheprovider", "-p", "pipeline_core.testing.plugin"]
    return start([*words, f"--rootdir={folder}", folder]).stdout


@pytest.mark.slow
def test_each_class_is_a_line(text):
    passed, failed = (int(re.search(rf"(\d+) {word}", text)[1]) for word in ("passed", "error"))
    rows = dict(re.findall(r"^(\w+: \w+) +(\d+ +\d+ +\d+) +[\d.]+$", text, re.MULTILINE))
    counts = {name: [int(n) for n in row.split()] for name, row in rows.items()}
    assert counts == {"mace: Right": [passed - 1, 0, 1], "no_such: Unknown": [0, failed, 0]}


@pytest.mark.slow
def test_what_is_skipped_and_what_fails_is_told_with_its_reason(text):
    assert "skipped: mace: Right: 1 checks: for a reason" in text
    words = "failed: no_such: Unknown: the model is described: AssertionError: 0 plugins are called"
    assert words in text


def test_nothing_is_printed_without_the_suite():
    printed = []
    ConformanceTable().pytest_terminal_summary(printed)
    assert printed == []
