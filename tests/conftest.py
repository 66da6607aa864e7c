"""What holds for every test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import budgets

if TYPE_CHECKING:
    from trained_runs import TrainedRuns

# The same examples in every run: a failure is one of the code, on every machine.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")

# Repositories of their own, whose tests run where they are installed.
collect_ignore_glob = ["outside/*/*"]

HELPERS = {"cc", "gcc", "git", "ld", "ldconfig", "uname"}
"""Programs that end at once; tests that start nothing else count as tests without processes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-processes",
        action="store_true",
        help="skip tests that start Python, Snakemake or a launcher, as soon as they try",
    )
    budgets.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    # The one that only hands tests to the workers of xdist has to start these.
    hands_out = config.getoption("numprocesses", None)
    if config.getoption("--no-processes") and not hands_out:
        sys.addaudithook(skip_at_process)
    budgets.register(config)


def skip_at_process(event: str, arguments: tuple[object, ...]) -> None:
    """Skip the running test where it starts a process; an audit hook (PEP 578)."""
    starts = event == "subprocess.Popen" and Path(str(arguments[0])).name not in HELPERS
    if starts or event == "os.fork":
        pytest.skip("starts a process", allow_module_level=True)


@pytest.fixture(scope="session")
def trained_runs(tmp_path_factory: pytest.TempPathFactory) -> TrainedRuns:
    """A trained run of each plugin, shared by all workers; made when a test asks for it."""
    from trained_runs import TrainedRuns

    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "trained"
    folder.mkdir(exist_ok=True)
    return TrainedRuns(folder)


@pytest.fixture
def figure_style() -> Iterator[None]:
    """The style in which the stage draws."""
    from pipeline_core.figures import style

    with style.apply_style():
        yield


@pytest.fixture
def double_precision() -> Iterator[None]:
    """Numbers in float64: e3nn makes its matrices in the default type."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
