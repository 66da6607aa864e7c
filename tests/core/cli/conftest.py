"""The command line, called in this process, and a project for it to work on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fake_packages import forget, install, write_model_source
from pipeline_core.cli import app

FRAME = """\
2
Lattice="6 0 0 0 6 0 0 0 6" Properties=species:S:1:pos:R:3:REF_forces:R:3 REF_energy={energy}
H 0 0 0 0 0 {force}
O 0 0 1 0 0 -{force}
"""

DATASET = """\
description: A test
sources:
  - path: water.xyz
    keys: {energy: REF_energy, forces: REF_forces}
labels: [energy, forces]
"""

EXPERIMENT = """\
description: A first test
plugin: alpha
dataset: water
variants:
  wide: {model: {width: 16}}
  longer: {train: {epochs: 7}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A project in the working directory, and `alpha` installed."""
    site = tmp_path / "site"
    install(site, "alpha", write_model_source("alpha"))
    monkeypatch.syspath_prepend(site)
    monkeypatch.chdir(tmp_path)
    for name in ("datasets", "experiments/alpha"):
        (tmp_path / "workflows" / name).mkdir(parents=True)
    frames = [FRAME.format(energy=-14.0 - i, force=0.1 * i + 0.1) for i in range(3)]
    (tmp_path / "workflows/datasets/water.xyz").write_text("".join(frames))
    (tmp_path / "workflows/datasets/water.yaml").write_text(DATASET)
    (tmp_path / "workflows/experiments/alpha/first.yaml").write_text(EXPERIMENT)
    yield tmp_path
    forget(site)


@pytest.fixture
def second_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that torchrun gives to the second of two ranks."""
    environment = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def call() -> Callable:
    """Runs the command line; returns exit code and output."""
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def refuse(call: Callable) -> Callable:
    """Runs a command that has to fail with these messages; returns what it said of it."""

    def run(words: Sequence[object], *messages: str) -> str:
        result = call(*words)
        assert result.exit_code == 1, result.output
        assert [message for message in messages if message not in result.stderr] == [], (
            result.stderr
        )
        return result.stderr

    return run


def read_rows(output: str) -> dict[str, list[str]]:
    """Return the words of the lines of a table, by their first one."""
    return {line.split()[0]: line.split()[1:] for line in output.splitlines() if line.split()}
