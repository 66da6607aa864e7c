from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from archives import unpack

CP2K = Path(__file__).parent / "cp2k"


@pytest.fixture(scope="session")
def water_runs(tmp_path_factory) -> Path:
    """Folders of three runs of CP2K; not to be changed."""
    folder = tmp_path_factory.mktemp("cp2k")
    unpack(CP2K / "chain.tar.xz", folder)
    return folder


@pytest.fixture
def moved(tmp_path) -> Path:
    """Folder of a step of molecular dynamics, with matrices of the last positions."""
    unpack(CP2K / "moved.tar.xz", tmp_path)
    return tmp_path / "moved"


@pytest.fixture
def chain(water_runs, tmp_path) -> Path:
    """A copy of the run with k-points, to be damaged."""
    return Path(shutil.copytree(water_runs / "chain", tmp_path / "chain"))
