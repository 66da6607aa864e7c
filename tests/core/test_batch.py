"""Batches. Oracle: rows numbered in a sample are the rows numbered in its batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_core.batch import collate, count_samples, move_to_device
from pipeline_core.fields import FIELDS, Field

INDEXING = {name: field.indexes for name, field in FIELDS.items() if field.indexes}


def sample_of(rng: np.random.Generator) -> dict:
    n = {kind: int(rng.integers(1, 6)) for kind in ("atom", "edge", "bond", "angle")}
    sample = {
        name: rng.integers(0, n[kind], (n[FIELDS[name].kind], *FIELDS[name].shape)).astype(np.int32)
        for name, kind in INDEXING.items()
    }
    return sample | {
        "cell": rng.normal(size=(3, 3)),
        "pbc": rng.random(3) < 0.5,
        "energy": np.asarray(-1e6 * rng.random()),
        "group": np.asarray("a"),
        "split": np.asarray(1, np.int8),
        "atomic_numbers": rng.integers(1, 90, n["atom"]).astype(np.int32),
        "positions": rng.normal(size=(n["atom"], 3)),
        "edge_shift": rng.integers(-2, 3, (n["edge"], 3)).astype(np.int16),
    }


@given(seed=st.integers(0, 1000), n=st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_numbers_of_rows_are_shifted(seed, n):
    rng = np.random.default_rng(seed)
    samples = [sample_of(rng) for _ in range(n)]
    # A value that tells each row of each kind from all others, before and after.
    names = {"atom": "positions", "edge": "edge_index", "bond": "bond_edge", "angle": "angle_edges"}
    batch = collate(samples, torch.float64)
    for name, kind in INDEXING.items():
        start = 0
        for i, sample in enumerate(samples):
            rows = batch[name][start : start + len(sample[name])]
            start += len(sample[name])
            assert (batch[f"{kind}_sample"][rows] == i).all()
            within = rows - batch[f"{kind}_offsets"][i]
            np.testing.assert_array_equal(within, sample[name])
        assert len(batch[name]) == start
    for kind, name in names.items():
        counts = [len(sample[name]) for sample in samples]
        assert batch[f"{kind}_offsets"].tolist() == np.cumsum([0, *counts]).tolist()
        assert batch[f"{kind}_sample"].tolist() == np.repeat(range(n), counts).tolist()
    assert count_samples(batch) == n


def test_an_energy_keeps_its_last_digits_in_single_precision():
    """And missing labels stay missing."""
    samples = [{"energy": np.asarray(value)} for value in (np.nan, -123456.789012345, 1.0)]
    batch = collate(samples, torch.float32)
    assert batch["energy"].isnan().tolist() == [True, False, False]
    assert batch["energy"][1].item() == -123456.789012345
    assert count_samples(batch) == 3


def test_samples_are_left_as_they_are():
    sample = sample_of(np.random.default_rng(2))
    before = {name: rows.copy() for name, rows in sample.items()}
    for rows in sample.values():
        rows.flags.writeable = False
    batch = collate([sample], torch.float64)
    moved = move_to_device(batch, torch.device("cpu"))  # copies nothing
    assert moved.keys() == batch.keys()
    assert all(moved[name].data_ptr() == batch[name].data_ptr() for name in batch)
    for tensor in batch.values():
        tensor.zero_()
    for name, rows in before.items():
        np.testing.assert_array_equal(sample[name], rows)


def test_samples_without_rows():
    rng = np.random.default_rng(3)
    full = {name: sample_of(rng)[name] for name in ("positions",)} | {
        "edge_index": np.zeros((2, 2), np.int32)
    }
    isolated = {"positions": np.zeros((1, 3)), "edge_index": np.zeros((0, 2), np.int32)}
    batch = collate([isolated, full, isolated], torch.float32)
    assert batch["edge_offsets"].tolist() == [0, 0, 2, 2]
    assert batch["edge_index"].tolist() == [[1, 1], [1, 1]]
    assert collate([isolated], torch.float32)["edge_index"].shape == (0, 2)


def test_a_plugin_brings_its_own_fields():
    own = Field("site", (), "1", "block", "i4", "The atom that a block belongs to.", "atom")
    link = Field("link", (2,), "1", "sample", "c16", "")
    samples = [
        {"positions": np.zeros((2, 3)), "site": np.array([0, 1, 1], np.int32)},
        {"positions": np.zeros((1, 3)), "site": np.array([0], np.int32)},
    ]
    samples = [sample | {"link": np.array([1 + 2j, 3j])} for sample in samples]
    batch = collate(samples, torch.float32, {**FIELDS, "site": own, "link": link})
    assert batch["site"].tolist() == [0, 1, 1, 2]
    assert batch["block_offsets"].tolist() == [0, 3, 4]
    assert batch["link"].dtype == torch.complex64
    assert batch["link"].tolist() == [[1 + 2j, 3j]] * 2


def test_rows_that_are_numbered_must_be_there():
    with pytest.raises(AssertionError, match="edge_index numbers rows of atom"):
        collate([{"edge_index": np.zeros((1, 2), np.int32)}], torch.float32)
