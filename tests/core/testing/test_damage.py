"""Flipped bits that the suite looks for. Oracle: files with checksums, and files without."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipeline_core.artifacts import store
from pipeline_core.testing.damage import find_silent_flips
from pipeline_core.training.model_file import save_archive

NUMBERS = np.random.default_rng(0).normal(size=5000)


def write_sealed(path):
    if path.suffix == ".json":
        store.write_json(path, {"numbers": NUMBERS.tolist()}, {"stage": "evaluate"})
    elif path.suffix == ".pt":
        save_archive(path, {"weights": {"a": torch.from_numpy(NUMBERS)}}, {"stage": "train"})
    else:
        with store.create(path, "any", {"stage": "infer"}) as file:
            file["numbers"] = NUMBERS


@pytest.fixture
def run(tmp_path):
    """As much of a run as reading a file asks for."""
    return SimpleNamespace(history=tmp_path / "history.jsonl")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.json", "a.h5", "a.pt"])
def test_what_the_store_writes_notices_each(run, tmp_path, name):
    path = tmp_path / name
    write_sealed(path)
    whole = path.read_bytes()
    assert [find_silent_flips(run, path, seed) for seed in range(20)] == [[]] * 20
    assert path.read_bytes() == whole


def test_what_has_no_checksum_is_named_with_the_place_and_the_cure(run, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"numbers": NUMBERS.tolist()}))
    size = path.stat().st_size
    silent = [line for seed in range(5) for line in find_silent_flips(run, path, seed)]
    assert all(re.match(rf"{path}, byte \d+ of {size}: ", line) for line in silent)
    assert any("write it by pipeline_core.artifacts.store" in line for line in silent)


def test_an_error_that_is_no_message_counts(run, tmp_path, monkeypatch):
    path = tmp_path / "a.h5"
    write_sealed(path)
    whole = path.read_bytes()

    def check(path):
        if path.read_bytes() != whole:
            raise KeyError("numbers")

    monkeypatch.setattr(store, "check", check)
    silent = find_silent_flips(run, path)
    assert len(silent) == 10
    assert all("KeyError('numbers')" in line for line in silent)
