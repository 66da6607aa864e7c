"""What tests share: experiments with made-up results, an evaluated flow, dataset files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pipeline_core.config.yaml_files import read_yaml, validate_content
from pipeline_core.project.run import DatasetRun
from pipeline_core.stages.builtin import load_registry
from pipeline_gauge_flows.data.datasets import EnsembleDataset
from plugins.gauge_flows import made_up
from plugins.gauge_flows.small import write_dataset
from plugins.gauge_flows.trained import HEATBATH, SQUARE, THEORY, make_fresh_run


@pytest.fixture(scope="session")
def loops(tmp_path_factory):
    """Return an experiment that tests leave as it is."""
    expected = made_up.EXPECTED.read_text()
    return made_up.write_loops(tmp_path_factory.mktemp("loops"), expected=expected)


@pytest.fixture(scope="session")
def between(tmp_path_factory):
    """Return an experiment with derivatives that tests leave as it is."""
    expected = made_up.EXPECTED.read_text()
    return made_up.write_derivatives(tmp_path_factory.mktemp("derivatives"), expected=expected)


@pytest.fixture(scope="session")
def identity(tmp_path_factory):
    """A flow that maps nothing, on its way to beta = 1, and an ensemble of that."""
    folder = tmp_path_factory.mktemp("identity")
    return make_fresh_run(folder, {**THEORY, "generate": HEATBATH}, graph=SQUARE)


@pytest.fixture
def dataset(tmp_path) -> Callable[..., DatasetRun]:
    def make(**content: Any) -> DatasetRun:
        path = write_dataset(tmp_path, "theory", content)
        options = validate_content(EnsembleDataset, read_yaml(path), path)
        folder = tmp_path / "results/datasets/theory"
        return DatasetRun("theory", path, options, folder, load_registry())

    return make
