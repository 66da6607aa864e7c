from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

CP2K = Path(__file__).parent / "cp2k"


@pytest.fixture(scope="session")
def water_runs(tmp_path_factory) -> Path:
    """Folders of three runs of CP2K; not to be changed."""
    folder = tmp_path_factory.mktemp("cp2k")
    with tarfile.open(CP2K / "chain.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def moved(tmp_path) -> Path:
    """Folder of a step of molecular dynamics, with matrices of the last positions."""
    with tarfile.open(CP2K / "moved.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "moved"


@pytest.fixture
def chain(water_runs, tmp_path) -> Path:
    """A copy of the run with k-points, to be damaged."""
    return Path(shutil.copytree(water_runs / "chain", tmp_path / "chain"))
