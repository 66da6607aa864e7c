"""The shared trainer on one rank.

Oracle: a loop of ten lines around torch's own optimizer, loss functions and averaging, with whole
windows as batches and no trainer in it.
"""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_
from torch.optim.swa_utils import AveragedModel

import toy_potential as toy
from pipeline_core.config.sections import TrainOptions
from pipeline_core.task import build_task
from pipeline_core.training.checkpoint import load_state
from pipeline_core.training.model_file import load_model
from pipeline_core.training.trainer import train_run
from records import assert_same_weights, read_history, read_weights

ROUNDING = {"rtol": 1e-10, "atol": 1e-12}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run in single precision, whose weights others start from."""
    return toy.train(tmp_path_factory.mktemp("trained"), {"precision": "32-true", "epochs": 1})


def compute_plain_loss(batch, outputs):
    n_atoms = batch["atom_offsets"].diff()
    has_forces = ~batch["forces"].isnan()
    energy = functional.mse_loss(outputs["energy"] / n_atoms, batch["energy"] / n_atoms)
    forces = functional.huber_loss(
        outputs["forces"][has_forces], batch["forces"][has_forces], delta=0.5
    )
    return energy + 2 * forces, energy, forces


def train_plainly(run, module, trained, average):
    """Train a part of a module, and its average; return the norm of the gradient of each step."""
    samples, options = build_task(run).samples("train"), run.get_section("train", TrainOptions)
    optimizer = torch.optim.Adam(trained.parameters(), lr=1e-2)
    norms = []
    for epoch in range(options.epochs):
        order = np.random.default_rng([run.seed, epoch]).permutation(len(samples))
        mine = samples.of_epoch(epoch) if run.options.drawn else samples
        for start in range(0, len(order), 4):
            batch = mine.batch(sorted(order[start : start + 4]))
            optimizer.zero_grad()
            compute_plain_loss(batch, module(batch))[0].backward()
            largest = options.clip_norm or math.inf
            norms.append(float(clip_grad_norm_(trained.parameters(), largest)))
            optimizer.step()
            average.update_parameters(module)
    return norms


@pytest.mark.parametrize(
    ("train", "sections"),
    [
        ({}, {}),
        ({}, {"model": {"missing": True}}),
        ({}, {"partition": {"capacity": 1.0}}),  # each sample alone
        ({}, {"partition": {"capacity": 40.0}}),
        (
            {},
            {"model": {"drawn": True}},
        ),  # the energies of each epoch are higher; those of validation are not
        ({"clip_norm": 1.0}, {}),
        ({"ema_decay": 0.7}, {}),
        ({"freeze": ["net.0", "unused"]}, {}),
        ({"start_from": "published:trained"}, {}),
    ],
    ids=["all", "missing", "alone", "in parts", "drawn", "clipped", "averaged", "frozen", "tuned"],
)
def test_equals_a_plain_loop(trained, tmp_path, train, sections):
    if "start_from" in train:
        train = {"start_from": str(trained.model)}
    run = toy.make_run(tmp_path, train, **sections)
    summary = train_run(run)
    module = build_task(run).module.double()
    if "start_from" in train:
        module.load_state_dict(read_weights(trained))
    start = module.net[0].weight.clone()
    average = AveragedModel(module, avg_fn=lambda old, new, _: 0.7 * old + 0.3 * new)
    part = module.net[2] if "freeze" in train else module.net
    norms = train_plainly(run, module, part, average)
    learner = load_state(run.state / "last.pt", run.model_info)["learner"]
    # torch adds 1e-6 to the norm that it clips
    tolerance = {"rtol": 1e-5, "atol": 1e-7} if "clip_norm" in train else ROUNDING
    assert_same_weights(learner["module"], module.state_dict(), **tolerance)
    if "ema_decay" in train:
        assert_same_weights(learner["average"], average.state_dict(), **ROUNDING)
    if "freeze" in train:
        assert torch.equal(learner["module"]["net.0.weight"], start)
        n_trained = sum(p.numel() for p in part.parameters())
        assert summary["frozen"] == summary["parameters"] - n_trained
    lines = [line for line in read_history(run) if line["epoch"]]
    means = np.reshape(norms, (3, 4)).mean(axis=1)
    assert [line["grad_norm"] for line in lines] == pytest.approx(means.tolist())
    assert "clip_norm" not in train or min(norms) < 1 < max(norms)


def test_another_seed_begins_with_other_weights(tmp_path):
    one, two = (build_task(toy.make_run(tmp_path / str(seed), seed=seed)).module for seed in (1, 2))
    assert not torch.equal(one.net[0].weight, two.net[0].weight)


def test_history_by_hand(tmp_path):
    run = toy.make_run(tmp_path, {"batch_size": "all", "epochs": 1})
    summary = train_run(run)
    task = build_task(run)
    module = task.module.double()
    batch = task.samples("train").batch(range(13))
    total, energy, forces = compute_plain_loss(batch, module(batch))
    (record,) = read_history(run)
    assert record["epoch"] == 1
    assert record["lr"] == 0.01
    assert record["train"] == pytest.approx(
        {"loss": total.item(), "energy": energy.item(), "forces": forces.item()}
    )
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


@pytest.mark.parametrize(
    "train",
    [{"batch_by": "cost"}, *({"precision": p} for p in ("32-true", "bf16-mixed", "16-mixed"))],
)
def test_other_windows_and_precisions_train_too(tmp_path, train):
    """Nothing global is left changed."""
    before = torch.get_default_dtype()
    run = toy.train(tmp_path, {"epochs": 4} | train)
    losses = [record["train"]["loss"] for record in read_history(run)]
    assert losses[-1] < losses[0]
    assert load_model(run.model)["dtype"] == ("float32" if "precision" in train else "float64")
    assert torch.get_default_dtype() == before
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.is_grad_enabled()
    assert not torch.distributed.is_initialized()


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
