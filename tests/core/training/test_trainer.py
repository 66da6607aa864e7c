"""The shared trainer on one rank.

Oracle: a loop of ten lines around torch's own optimizer, loss functions and averaging, with whole
windows as batches and no trainer in it.
"""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

import toy_potential as toy
from pipeline_core.task import build_task
from pipeline_core.training.checkpoint import load_model
from pipeline_core.training.state import load_state
from pipeline_core.training.trainer import train_run
from records import read_history


def read_weights(run):
    return load_model(run.model)["weights"]


def assert_same_weights(a, b, **tolerance):
    assert a.keys() == b.keys()
    for name, tensor in a.items():
        assert_close(tensor, b[name], msg=lambda text, name=name: f"{name}: {text}", **tolerance)


EXACT = {"rtol": 0, "atol": 0}
ROUNDING = {"rtol": 1e-10, "atol": 1e-12}


def compute_plain_loss(batch, outputs):
    n_atoms = batch["atom_offsets"].diff()
    has_forces = ~batch["forces"].isnan()
    energy = functional.mse_loss(outputs["energy"] / n_atoms, batch["energy"] / n_atoms)
    forces = functional.huber_loss(
        outputs["forces"][has_forces], batch["forces"][has_forces], delta=0.5
    )
    return energy + 2 * forces, energy, forces


def train_plainly(run, module, epochs, average=None, trained=None):
    """Yield the module after each epoch, in which a part, or all that matters, is trained."""
    samples = build_task(run).samples("train")
    optimizer = torch.optim.Adam((trained or module.net).parameters(), lr=1e-2)
    for epoch in range(epochs):
        order = np.random.default_rng([run.seed, epoch]).permutation(len(samples))
        mine = samples.of_epoch(epoch) if run.options.drawn else samples
        for start in range(0, len(order), 4):
            batch = mine.batch(sorted(order[start : start + 4]))
            optimizer.zero_grad()
            compute_plain_loss(batch, module(batch))[0].backward()
            optimizer.step()
            if average is not None:
                average.update_parameters(module)
        yield module


@pytest.mark.parametrize("missing", [False, True])
def test_equals_a_plain_loop(tmp_path, missing):
    run = toy.make_run(tmp_path, model={"n_val": 0, "missing": missing})
    train_run(run)
    *_, expected = train_plainly(run, build_task(run).module.double(), 3)
    losses = [record["train"]["loss"] for record in read_history(run)]
    assert losses.index(min(losses)) == 2  # so that the best weights are the last ones
    assert_same_weights(read_weights(run), expected.state_dict(), **ROUNDING)


def test_samples_may_be_drawn_for_each_epoch(tmp_path):
    """Their energies rise from epoch to epoch; those of validation do not."""
    run = toy.make_run(tmp_path, model={"drawn": True})
    train_run(run)
    *_, expected = train_plainly(run, build_task(run).module.double(), 3)
    steps = load_state(run.state / "last.pt", run.model_info)["learner"]["module"]
    assert_same_weights(steps, expected.state_dict(), **ROUNDING)


def test_history_by_hand(tmp_path):
    run = toy.make_run(tmp_path, {"batch_size": "all", "epochs": 1})
    summary = train_run(run)
    task = build_task(run)
    module = task.module.double()
    batch = task.samples("train").batch(range(13))
    total, energy, forces = compute_plain_loss(batch, module(batch))
    total.backward()
    norm = torch.nn.utils.clip_grad_norm_(module.net.parameters(), math.inf)
    (record,) = read_history(run)
    assert record["epoch"] == 1
    assert record["lr"] == 0.01
    assert record["train"] == pytest.approx(
        {"loss": total.item(), "energy": energy.item(), "forces": forces.item()}
    )
    assert record["grad_norm"] == pytest.approx(norm.item())
    assert record["balance"] == 1
    trained = build_task(run).module.double()
    trained.load_state_dict(read_weights(run))
    held_out = task.samples("val").batch(range(5))
    outputs = trained(held_out)
    total, energy, forces = compute_plain_loss(held_out, outputs)
    assert record["val"]["loss"] == pytest.approx(total.item())
    per_atom = (outputs["energy"] - held_out["energy"]) / held_out["atom_offsets"].diff()
    assert record["mae"]["energy"] == pytest.approx(per_atom.abs().mean().item())
    assert record["mae"]["forces"] == pytest.approx(
        (outputs["forces"] - held_out["forces"]).abs().mean().item()
    )
    assert summary["epochs"] == summary["best_epoch"] == 1
    assert summary["best_loss"] == record["val"]["loss"]
    assert summary["parameters"] == sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("capacity", [1.0, 40.0])
def test_memory_does_not_change_the_mathematics(tmp_path, capacity):
    whole = toy.make_run(tmp_path / "whole")
    parts = toy.make_run(tmp_path / "parts", partition={"capacity": capacity})
    train_run(whole)
    train_run(parts)
    assert_same_weights(read_weights(parts), read_weights(whole), **ROUNDING)
    assert read_history(parts)[-1]["val"] == pytest.approx(read_history(whole)[-1]["val"])


def test_average_of_weights(tmp_path):
    run = toy.make_run(tmp_path, {"ema_decay": 0.7, "epochs": 1})
    train_run(run)
    module = build_task(run).module.double()
    average = torch.optim.swa_utils.AveragedModel(
        module, avg_fn=lambda old, new, _: 0.7 * old + 0.3 * new
    )
    list(train_plainly(run, module, 1, average))
    assert_same_weights(read_weights(run), average.module.state_dict(), **ROUNDING)


def test_clipping_changes_the_steps_but_not_the_reported_norm(tmp_path):
    free = toy.make_run(tmp_path / "free", {"epochs": 1, "batch_size": "all"})
    clipped = toy.make_run(
        tmp_path / "clipped", {"epochs": 1, "batch_size": "all", "clip_norm": 1e-9}
    )
    train_run(free)
    train_run(clipped)
    assert read_history(free)[0]["grad_norm"] == read_history(clipped)[0]["grad_norm"]
    # Adam divides by the norm of the gradient plus 1e-8: without clipping a step is lr = 0.01 long
    start = build_task(clipped).module.double().net[0].weight.detach()
    assert (read_weights(clipped)["net.0.weight"] - start).abs().max() < 0.002
    assert (read_weights(free)["net.0.weight"] - start).abs().min() > 0.009


@pytest.mark.parametrize(
    "train",
    [{"batch_by": "cost"}, *({"precision": p} for p in ("32-true", "bf16-mixed", "16-mixed"))],
)
def test_other_windows_and_precisions_train_too(tmp_path, train):
    """Nothing global is left changed."""
    before = torch.get_default_dtype()
    run = toy.make_run(tmp_path, {"epochs": 4} | train)
    train_run(run)
    losses = [record["train"]["loss"] for record in read_history(run)]
    assert losses[-1] < losses[0]
    assert load_model(run.model)["dtype"] == ("float32" if "precision" in train else "float64")
    assert torch.get_default_dtype() == before
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.is_grad_enabled()
    assert not torch.distributed.is_initialized()


def test_the_best_epoch_is_kept(tmp_path):
    settings = {"optimizer": {"lr": 0.3}}
    run = toy.make_run(tmp_path / "all", settings | {"epochs": 6})
    summary = train_run(run)
    losses = [record["val"]["loss"] for record in read_history(run)]
    best = losses.index(min(losses))
    assert best < 5, "the rate should be too high for steady progress"
    assert summary["best_epoch"] == best + 1
    shorter = toy.make_run(tmp_path / "shorter", settings | {"epochs": best + 1})
    train_run(shorter)
    assert_same_weights(read_weights(run), read_weights(shorter), **EXACT)


def test_patience_ends_the_training(tmp_path):
    run = toy.make_run(tmp_path, {"epochs": 50, "patience": 2, "optimizer": {"lr": 0.3}})
    summary = train_run(run)
    assert summary["epochs"] == summary["best_epoch"] + 2 < 50
    assert len(read_history(run)) == summary["epochs"]


def remove_labels(seed, missing, make=toy.sample):
    """Make a sample, which has no labels where it is one for validation."""
    made = make(seed, missing)
    nothing = {name: np.full_like(made[name], np.nan) for name in ("energy", "forces")}
    return made | nothing if seed >= 1000 else made


@pytest.mark.parametrize("labelled", [True, False])
def test_without_validation_the_training_loss_decides(tmp_path, monkeypatch, labelled):
    """Without samples for it, or without labels of these."""
    if not labelled:
        monkeypatch.setattr(toy, "sample", remove_labels)
    run = toy.make_run(tmp_path, model={"n_val": 0 if labelled else 5})
    toy.EPOCHS_HEARD.clear()
    summary = train_run(run)
    lines = read_history(run)
    assert summary["best_loss"] == min(record["train"]["loss"] for record in lines) > 0
    assert lines[0]["val"] is None
    assert labelled <= (lines[0]["mae"] == {})
    assert lines == toy.EPOCHS_HEARD


def test_same_seed_same_bits_another_seed_others(tmp_path):
    runs = [
        toy.make_run(tmp_path / name, seed=seed) for name, seed in [("a", 1), ("b", 1), ("c", 2)]
    ]
    for run in runs:
        train_run(run)
    assert_same_weights(read_weights(runs[0]), read_weights(runs[1]), **EXACT)
    assert not torch.equal(*(read_weights(run)["net.0.weight"] for run in runs[1:]))


@pytest.mark.parametrize(
    ("train", "model", "message"),
    [
        ({}, {"n_train": 0}, "split 'train' of its dataset is empty"),
        ({"loss": {}}, {}, "train.loss gives no field a weight above zero"),
        ({"optimizer": {"lr": 1e200}}, {}, "diverged in step"),
    ],
)
def test_hopeless_trainings_say_why(tmp_path, train, model, message):
    run = toy.make_run(tmp_path, train, model=model)
    with pytest.raises(ValueError, match=message):
        train_run(run)
