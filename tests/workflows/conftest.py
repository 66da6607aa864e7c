"""Projects with toy plugins: one in which nothing has run, one in which all has."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from workflows import toy


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """A project in which nothing has run."""
    toy.write_project(tmp_path / "project")
    return tmp_path / "project"


@pytest.fixture(scope="session")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "project"
    toy.write_project(folder)
    toy.snakemake(folder)
    return folder


@pytest.fixture
def finished(_finished: Path, tmp_path: Path) -> Path:
    """A project in which everything has run."""
    shutil.copytree(_finished, tmp_path / "project", symlinks=True)
    return tmp_path / "project"
