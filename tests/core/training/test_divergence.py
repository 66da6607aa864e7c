"""A training that diverges, fills the disk or runs out of memory keeps what it has."""

import json
import logging
from dataclasses import replace

import numpy as np
import pytest
import torch

import toy_potential as toy
from pipeline_core.artifacts.samples import SampleWriter
from pipeline_core.artifacts.seals import identify
from pipeline_core.artifacts.store import read_provenance
from pipeline_core.config.sections import PartitionOptions
from pipeline_core.evaluation.evaluate import evaluate_run
from pipeline_core.fields import FIELDS
from pipeline_core.project.run import DatasetRun
from pipeline_core.task import build_task
from pipeline_core.training import divergence
from pipeline_core.training.balance.partitioning import write_partition
from pipeline_core.training.checkpoint import load_state
from pipeline_core.training.model_file import load_archive, load_model, save_archive
from pipeline_core.training.trainer import train_run
from records import assert_same_weights, read_history, read_weights

TEN = {"epochs": 10}
BAD_BATCH = 5 * 4 + 3  # the third step of the sixth epoch, of four steps each


@pytest.fixture
def bad_batch(monkeypatch):
    """One training batch, as counted over the test, has energies whose squares overflow."""
    batch, calls = toy.ToySamples.batch, iter(range(1, 1000))

    def spoil(self, indices):
        made = batch(self, indices)
        if len(self) == 13 and len(indices) < 13 and next(calls) == BAD_BATCH:
            return made | {"energy": made["energy"] + 1e200}
        return made

    monkeypatch.setattr(toy.ToySamples, "batch", spoil)


def diverge(run):
    with pytest.raises(divergence.DivergedError) as error:
        train_run(run)
    return str(error.value)


def list_tensors(tree):
    if isinstance(tree, torch.Tensor):
        return [tree]
    items = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else []
    return [tensor for item in items for tensor in list_tensors(item)]


@pytest.mark.slow
def test_the_best_model_stays_and_advice_continues_the_training(tmp_path, bad_batch, caplog):
    run = toy.make_run(tmp_path / "a", TEN)
    message = diverge(run)
    assert "diverged in step 3 of epoch 6: loss inf, gradient norm" in message
    assert "in the step before loss" in message
    assert "lower train.optimizer.lr (now 0.01), set train.clip_norm" in message
    assert "continues after epoch 5" in message
    lines = read_history(run)
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4, 5]
    best = 1 + int(np.argmin([line["val"]["loss"] for line in lines]))
    assert f"{run.model} is the best model so far, of epoch {best}" in message
    provenance = read_provenance(run.model)
    assert provenance["unfinished"] == "epoch 5 of 10"
    assert provenance["epoch"] == best
    shorter = toy.train(tmp_path / "b", {"epochs": 5})
    assert_same_weights(read_weights(run), read_weights(shorter))
    with caplog.at_level(logging.WARNING):
        evaluate_run(run)
    assert "unfinished training (epoch 5 of 10)" in caplog.text

    lower = toy.train(tmp_path / "a", TEN | {"optimizer": {"lr": 1e-3}, "clip_norm": 1.0})
    assert "train.optimizer.lr 0.001 instead of 0.01" in caplog.text
    assert "afresh" not in caplog.text
    after = read_history(lower)
    assert after[:5] == lines
    assert [line["lr"] for line in after] == [0.01] * 5 + [0.001] * 5
    changed = {"train.clip_norm": ["None", "1.0"], "train.optimizer.lr": ["0.01", "0.001"]}
    assert after[5]["changes"] == {"epoch": 6, **changed}
    provenance = read_provenance(run.model)
    assert provenance["changes"] == [{"epoch": 6, **changed}]
    assert "unfinished" not in provenance
    assert not (run.state / "diverged.json").exists()


@pytest.mark.slow
def test_a_model_that_is_gone_comes_back_from_the_state(tmp_path, bad_batch):
    """Snakemake removes the outputs of a failed job."""
    run = toy.make_run(tmp_path, TEN)
    assert f"`{run.name_command('train')} --finish` brings it back" in diverge(run)
    weights, lines = read_weights(run), read_history(run)
    run.model.unlink()
    run.history.unlink()
    train_run(replace(run, is_finished=True))
    again = load_model(run.model)
    assert json.loads(again["provenance"])["unfinished"] == "epoch 5 of 10"
    assert_same_weights(again["weights"], weights)
    assert read_history(run) == lines
    lower = toy.make_run(tmp_path, TEN | {"optimizer": {"lr": 1e-3}})
    with pytest.raises(ValueError, match=r"another train.optimizer.lr; it can be finished only"):
        train_run(replace(lower, is_finished=True))
    train_run(lower)
    assert len(read_history(lower)) == 10


@pytest.mark.slow
def test_a_model_says_of_which_inputs_it_is_though_they_are_made_anew_meanwhile(
    tmp_path, monkeypatch
):
    run = toy.make_run(tmp_path)
    before, energies = identify(run.partition), toy.PairPotential.energies

    def partition_again(self, batch, vectors):
        if identify(run.partition) == before:
            write_partition(run, build_task(run), PartitionOptions(ranks=[1, 2]))
        return energies(self, batch, vectors)

    monkeypatch.setattr(toy.PairPotential, "energies", partition_again)
    train_run(run)
    assert identify(run.partition) != before
    assert read_provenance(run.model)["inputs"]["partition"] == before


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["64-true", "16-mixed"])
def test_a_state_within_an_epoch_is_finite(tmp_path, bad_batch, precision):
    run = toy.make_run(tmp_path, TEN | {"checkpoint_steps": 1, "precision": precision})
    message = diverge(run)
    assert "step 3 of epoch 6" in message
    assert "continues after step 2 of epoch 6" in message
    state = load_state(run.state / "last.pt", run.model_info)
    assert (state["progress"]["epoch"], state["progress"]["step"]) == (5, 2)
    assert all(x.isfinite().all() for x in list_tensors(state["learner"]["module"]))
    train_run(
        toy.make_run(
            tmp_path,
            TEN | {"checkpoint_steps": 1, "precision": precision, "optimizer": {"lr": 1e-3}},
        )
    )
    assert len(read_history(run)) == 10


@pytest.mark.slow
def test_other_changes_than_the_advice_start_afresh(tmp_path, bad_batch, caplog):
    diverge(toy.make_run(tmp_path, TEN))
    train_run(toy.make_run(tmp_path, TEN | {"batch_size": 5, "optimizer": {"lr": 1e-3}}))
    assert "saved with another train.batch_size; training starts afresh" in caplog.text


def test_samples_are_called_by_file_and_frame(tmp_path):
    made = toy.make_run(tmp_path)
    path = tmp_path / "samples.yaml"
    run = replace(made, dataset=DatasetRun("samples", path, None, tmp_path, made.registry))
    fields = [FIELDS["split"], FIELDS["source"]]
    with SampleWriter(run.data, "data", {}, fields) as writer:
        for number, split in enumerate([0, 1, 0, 0]):
            writer.add({"split": np.int8(split), "source": np.array(f"a.xyz:{number}", object)})
    assert divergence.name_samples(run, 3, np.array([0, 2])) == ["a.xyz:0", "a.xyz:3"]
    assert divergence.name_samples(run, 7, np.array([5])) == ["train sample 5"]


@pytest.mark.slow
def test_a_full_disk_keeps_state_and_model(tmp_path):
    run = toy.train(tmp_path)
    kept = {p: p.read_bytes() for p in (run.model, run.state / "last.pt")}
    toy.make_run(tmp_path, {"epochs": 6})
    done = toy.start_on_ranks(tmp_path, 1, TOY_FATE="1 fills 0")
    assert done.returncode != 0
    assert f"ValueError: {run.state}/last.pt: cannot be written (File too large)" in done.stderr
    assert {p: p.read_bytes() for p in kept} == kept
    assert not list(tmp_path.rglob("*.part"))
    train_run(toy.load_run(tmp_path))
    assert len(read_history(run)) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "capacity", "cure"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), None, "set partition.capacity below"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), None, "train.batch_size"),
        (MemoryError(), 1.0, "a single sample is too large"),
    ],
)
def test_want_of_memory_is_named_with_samples_and_cure(
    tmp_path, monkeypatch, error, capacity, cure
):
    run = toy.make_run(tmp_path, partition={"capacity": capacity})
    energies, calls = toy.PairPotential.energies, []

    def fail(self, batch, vectors):
        if self.training:
            calls.append(1)
            if len(read_history(run)) == 2:
                raise error
        return energies(self, batch, vectors)

    monkeypatch.setattr(toy.PairPotential, "energies", fail)
    with pytest.raises(ValueError, match="out of memory in step 1 of epoch 3 on rank 0") as caught:
        train_run(run)
    assert "train sample" in str(caught.value)
    assert cure in str(caught.value)
    assert "continues after epoch 2" in str(caught.value)
    assert read_provenance(run.model)["unfinished"] == "epoch 2 of 3"


def test_what_cannot_be_trained_or_finished_is_explained(tmp_path):
    run = toy.make_run(tmp_path)
    with pytest.raises(ValueError, match="no epoch of this training has ended"):
        train_run(replace(run, is_finished=True))
    assert not run.model.exists()
    large = replace(run, sections={**run.sections, "model": toy.ToyOptions(width=10**16)})
    with pytest.raises(ValueError, match="out of memory for the model of pairs: choose a smaller"):
        train_run(large)


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["progress", "learner", "facts", "totals", "generators"])
def test_a_state_of_unknown_content_is_explained(tmp_path, caplog, broken):
    run = toy.train(tmp_path, {"epochs": 1})
    path = run.state / "last.pt"
    state = load_archive(path, "")
    save_archive(path, {**state, broken: {"unknown": 1}}, {})
    longer = toy.make_run(tmp_path, {"epochs": 2})
    if broken in ("progress", "learner", "facts"):
        train_run(longer)
        assert "training starts afresh" in caplog.text
    else:
        with pytest.raises(ValueError, match=r"last\.pt: not a state that this version .* remove"):
            train_run(longer)
