"""Seconds that each file of tests may take, and which take more: told at the end, failing nothing.

`budgets.json` holds the seconds of each file on a quiet machine with two cores, in the first tier
and in all. Files that take less than a second are left out. What a trained run takes, whichever
test asks for it first, counts for `trained_runs.py`.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).with_suffix(".json")
ROOT = PATH.parents[1]
SHARED = "tests/trained_runs.py"
LEAST = 1.0
"""Seconds of a file that is listed."""
GRACE = 2.0
"""Seconds above its budget that no file is blamed for."""
TIERS = ("the first tier", "all tests")


def add_options(parser: pytest.Parser) -> None:
    """Let `pytest --write-budgets` write what a run has taken."""
    parser.addoption(
        "--write-budgets",
        action="store_true",
        help=f"write what each file has taken to {PATH.relative_to(ROOT)}",
    )


class Budgets:
    """Adds up what files take, and compares it with what they may take.

    Args:
        budgets: Seconds in both tiers by file.
        tier: Which of them this run is compared with, 0 or 1.
    """

    def __init__(self, budgets: Mapping[str, list[float]], tier: int) -> None:
        self.budgets, self.tier = budgets, tier
        self.seconds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note what of a test was the making of a trained run, in the process that runs it."""
        report = yield
        module = sys.modules.get("trained_runs")
        report.user_properties.append(
            (SHARED, module.TrainedRuns.take_seconds() if module else 0.0)
        )
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one of the three parts of a test to its file."""
        shared = dict(report.user_properties).get(SHARED, 0.0)
        first_tier = "exhaustive" not in report.keywords
        file = report.nodeid.partition("::")[0]
        for name, seconds in ((file, report.duration - shared), (SHARED, shared)):
            self.seconds[name][0] += seconds * first_tier
            self.seconds[name][1] += seconds

    def list_exceeded(self) -> list[str]:
        """Return a line for each file that exceeds its budget by half, the worst first."""
        found = []
        for file, taken in self.seconds.items():
            seconds, budget = taken[self.tier], self.budgets.get(file, [LEAST] * 2)[self.tier]
            if seconds > max(1.5 * budget, budget + GRACE):
                found.append((seconds - budget, f"{file}: {seconds:.0f} s of {budget:.0f}"))
        return [line for _, line in sorted(found, reverse=True)]

    def update(self) -> dict[str, list[float]]:
        """Return the budgets with what this run has taken in their place.

        Those of files that have not run stay as long as the files are there. A run of the first
        tier alone changes nothing but its own seconds.
        """
        new = {file: list(pair) for file, pair in self.budgets.items() if (ROOT / file).exists()}
        for file, taken in self.seconds.items():
            before = new.get(file, [0.0, 0.0])
            kept = taken if self.tier else [taken[0], max(before[1], taken[0])]
            new[file] = [round(seconds, 1) for seconds in kept]
        return {file: pair for file, pair in sorted(new.items()) if max(pair) >= LEAST}


class Reporter(Budgets):
    """Tells what a run has come to; of several processes the one that hands out the tests."""

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print what exceeds its budget."""
        lines = self.list_exceeded()
        if lines:
            terminalreporter.section(f"above the budget of {TIERS[self.tier]} by half")
            terminalreporter.write("\n".join([*lines, ""]))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the budgets anew, if that was asked for."""
        if session.config.getoption("--write-budgets"):
            write_budgets(PATH, self.update())


def read_budgets(path: Path) -> dict[str, list[float]]:
    """Return the budgets of a file, none if it is not there."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_budgets(path: Path, budgets: Mapping[str, list[float]]) -> None:
    """Write budgets, a file a line."""
    lines = [f"  {json.dumps(file)}: {json.dumps(pair)}" for file, pair in budgets.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def register(config: pytest.Config) -> None:
    """Watch a run of pytest."""
    tier = int("not exhaustive" not in config.option.markexpr)
    kind = Budgets if hasattr(config, "workerinput") else Reporter
    config.pluginmanager.register(kind(read_budgets(PATH), tier), "budgets")
