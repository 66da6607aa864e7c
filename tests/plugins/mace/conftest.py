"""Files of networks of mace-torch, in its layout, and what mace-torch predicts with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from forked_ranks import run_on_ranks
from plugins.mace.recorded import read_record


def run_stand_in(*arguments: object) -> str:
    """Run `stand_in.py` in a process, which has its modules of mace-torch; return its output."""
    done = run_on_ranks("plugins.mace.stand_in", arguments, 1)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def peer_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with NAME.model of the networks of `foundations.py`, written by `stand_in.py`."""
    folder = tmp_path_factory.mktemp("mace_torch")
    run_stand_in("write", folder)
    return folder


@pytest.fixture(scope="session")
def recorded() -> dict[str, np.ndarray]:
    """Structures, states and predictions of mace-torch 0.3.16, by `foundations.py`."""
    return read_record("foundations.npz.xz")
