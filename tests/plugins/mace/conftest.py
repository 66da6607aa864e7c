"""Files of networks of mace-torch, in its layout, and what mace-torch predicts with them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from plugins.mace.recorded import read_record
from processes import finish

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def peer_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with NAME.model of the networks of `foundations.py`, written by `stand_in.py`."""
    folder = tmp_path_factory.mktemp("mace_torch")
    finish([os.fspath(HERE / "stand_in.py"), "write", folder])
    return folder


@pytest.fixture(scope="session")
def recorded() -> dict[str, np.ndarray]:
    """Structures, states and predictions of mace-torch 0.3.16, by `foundations.py`."""
    return read_record("foundations.npz.xz")
