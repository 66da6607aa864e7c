"""pytest plugin that ends a run with a table of conformance checks, by class and outcome.

    pytest -p pipeline_core.testing.plugin

It is not a pytest entry point, which would load it in every run wherever the package is installed.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from pipeline_core.testing.plugins import PluginConformance
from pipeline_core.testing.projects import OnProject

_SUITE: Final = (OnProject, PluginConformance)
_OUTCOMES: Final = ("passed", "failed", "skipped")
_PROPERTY: Final = "conformance"


@dataclass
class Row:
    """Results of the checks of one class.

    Attributes:
        outcomes: Number of checks by outcome.
        seconds: Their total time.
        failures: Name and message of each that failed.
        reasons: Number of skipped checks by reason.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    failures: list[tuple[str, str]] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)


class ConformanceTable:
    """Counter of results of the suite's classes, printed at the end of the run."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Mark the tests of the suite."""
        owner = getattr(item, "cls", None)
        if owner is not None and issubclass(owner, _SUITE):
            name = f"{owner.plugin}: {owner.__name__.removeprefix('Test')}"
            item.user_properties.append((_PROPERTY, name))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one of the three parts of a test: its fixtures may fail, too."""
        name = dict(report.user_properties).get(_PROPERTY)
        if name is None:
            return
        row = self.rows.setdefault(str(name), Row())
        row.seconds += report.duration
        if report.when == "call" or report.outcome != "passed":
            row.outcomes[report.outcome] += 1
        if report.skipped and isinstance(report.longrepr, tuple):
            row.reasons[report.longrepr[2].removeprefix("Skipped: ")] += 1
        if report.failed:
            check = report.nodeid.rpartition("::")[2].removeprefix("test_").replace("_", " ")
            row.failures.append((check, _find_message(report)))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the table, and a line for each check that has failed."""
        if self.rows:
            terminalreporter.section("conformance")
            terminalreporter.write_line(format_table(self.rows))


def pytest_configure(config: pytest.Config) -> None:
    """Add the table to a run of pytest."""
    config.pluginmanager.register(ConformanceTable(), "conformance-table")


def format_table(rows: dict[str, Row]) -> str:
    """Return a line for each class, each reason to skip checks, and each failed check."""
    lines: list[Sequence[str]] = [("checks", *_OUTCOMES, "seconds")]
    for name, row in rows.items():
        counts = (str(row.outcomes[outcome]) for outcome in _OUTCOMES)
        lines.append((name, *counts, f"{row.seconds:.1f}"))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = [
        name.ljust(widths[0])
        + "".join(f"  {w:>{n}}" for w, n in zip(words, widths[1:], strict=True))
        for name, *words in lines
    ]
    for name, row in rows.items():
        table += [f"skipped: {name}: {n} checks: {reason}" for reason, n in row.reasons.items()]
        table += [f"failed: {name}: {check}: {message}" for check, message in row.failures]
    return "\n".join(table)


def _find_message(report: pytest.TestReport) -> str:
    """Return the first line of the error message."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    return str(text).strip().partition("\n")[0]
