"""What one of several ranks meets ends all of them, and the training keeps what it has.

Oracle: a training on as many ranks that meets nothing, bit for bit.
"""

import json
import re

import pytest

import toy_potential as toy
from pipeline_core.artifacts.store import read_provenance
from pipeline_core.training.trainer import train_run
from records import assert_same_weights, read_history, read_weights
from tiers import run_first

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

AT_BATCH = {0: 13, 1: 8}
"""That of the second step of the third epoch, of each rank; rank 0 makes those of probes too."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Weights after four epochs of two ranks."""
    folder = tmp_path_factory.mktemp("whole")
    run = toy.make_run(folder, {"epochs": 4})
    toy.train_on_ranks(folder, 2)
    return read_weights(run)


def train_until(folder, fate, rank):
    """Train on two ranks until one meets its fate; return the run and what they said."""
    run = toy.make_run(folder, {"epochs": 4})
    done = toy.start_on_ranks(folder, 2, TOY_FATE=f"{AT_BATCH[rank]} {fate} {rank}")
    assert done.returncode != 0
    assert not list(run.folder.rglob("*.part"))
    return run, done.stderr


def read_progress(run):
    return read_provenance(run.model)["unfinished"]


@pytest.mark.parametrize("rank", run_first([1, 0]))
def test_a_divergence_of_one_is_one_of_all(tmp_path, rank):
    run, errors = train_until(tmp_path, "diverges", rank)
    assert "pairs: the training diverged in step 2 of epoch 3: loss inf" in errors
    assert "continues after epoch 2" in errors
    assert read_progress(run) == "epoch 2 of 4"
    note = json.loads((run.state / "diverged.json").read_text())
    assert note["state"] == {"epoch": 2, "step": 0}
    assert len(note["samples"]) == 4, "those of the step on all ranks"
    before = read_history(run)
    assert len(before) == 2
    lower = toy.make_run(tmp_path, {"epochs": 4, "optimizer": {"lr": 1e-3}})
    assert "afresh" not in toy.train_on_ranks(tmp_path, 2)
    after = read_history(lower)
    assert after[:2] == before
    assert [line["lr"] for line in after] == [0.01, 0.01, 0.001, 0.001]


@pytest.mark.parametrize("rank", run_first([0, 1]))
def test_want_of_memory_of_one(tmp_path, whole, rank):
    run, errors = train_until(tmp_path, "thirsts", rank)
    assert re.search(rf"out of memory in step \d of epoch 3 on rank {rank}, whose largest", errors)
    assert "continues after epoch 2" in errors
    assert read_progress(run) == "epoch 2 of 4"
    toy.train_on_ranks(tmp_path, 2)
    assert_same_weights(read_weights(run), whole)


def test_ranks_that_read_another_experiment_do_not_train_together(tmp_path):
    """As where it is edited while they start."""
    run = toy.make_run(tmp_path)
    done = toy.start_on_ranks(tmp_path, 2, TOY_DIFFERS="1")
    assert done.returncode != 0
    assert re.search(
        r"rank 1 on .* another run than rank 0: train.batch_size 3 instead of 4; let all ranks see",
        done.stderr,
    )
    assert not run.model.exists()


def test_a_full_disk_of_the_rank_that_writes(tmp_path, whole):
    """The state before is whole, and holds the best model, for which there was no room."""
    run, errors = train_until(tmp_path, "fills", 0)
    assert f"{run.state}/last.pt: cannot be written (File too large)" in errors
    toy.train_on_ranks(tmp_path, 2)
    assert_same_weights(read_weights(run), whole)


def test_one_goes_on_alone_after_a_loss(tmp_path, caplog):
    """Sums of one rank are rounded otherwise, so what it does itself is only alike."""
    run = toy.make_run(tmp_path, {"epochs": 4})
    assert toy.start_on_ranks(tmp_path, 2, TOY_FATE=f"{AT_BATCH[1]} dies 1").returncode != 0
    before = read_history(run)
    train_run(run)
    assert "afresh" not in caplog.text
    assert read_history(run)[: len(before)] == before
    assert len(read_history(run)) == 4
    assert not list(run.folder.rglob("*.part"))
