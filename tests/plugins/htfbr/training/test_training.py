"""Gradient steps over resident points and by torch's DataLoader.

The oracles are a polynomial that the tree holds exactly, the engine's trainer and plain autograd.
"""

import logging
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from pipeline_core.task import build_task
from pipeline_core.training.model_file import load_model
from pipeline_core.training.trainer import train_run
from pipeline_htfbr.data.points import read_points
from pipeline_htfbr.training import train_surface
from pipeline_htfbr.training.descent import Descent
from pipeline_htfbr.training.refusals import warn_if_underdetermined
from plugins.htfbr.fits import SECTIONS, assert_close, evaluate_polynomial, read_result
from records import read_history
from tiers import run_first

BATCHES = [{}, {"batch_size": 32, "clip_norm": 0.1}]
MODELS = [{"rank": 4}, {"rank": 3, "leaf_rank": 2}]


@pytest.mark.slow
@pytest.mark.parametrize(
    "train",
    run_first([{"gradient_weight": 1.0, "epochs": 800}, {"batch_size": 20, "epochs": 400}]),
)
def test_an_exact_polynomial_is_found(fit, train):
    adam = {"optimizer": {"lr": 0.02}, "schedule": {"name": "cosine", "final_fraction": 1e-3}}
    run = fit(adam | train | {"record_every": 100}, n=300)
    summary = train_surface(run)
    module = build_task(run).module.double()
    module.load_state_dict(load_model(run.model)["weights"])
    x = np.random.default_rng(9).uniform(-1, 1, (200, 3))
    actual = module.energies(torch.from_numpy(x)).detach()
    assert np.abs(actual.numpy() - evaluate_polynomial(x)).max() < 1e-5
    assert summary["best_loss"] < 1e-10
    assert summary["parameters"] == 3 * 3 * 4 + 4 * 3


@pytest.mark.slow
@pytest.mark.parametrize("case", run_first(product([0.3, 0.0], BATCHES), (0.3, BATCHES[1])))
def test_the_shared_trainer_follows_the_same_trajectory(fit, case):
    """The oracle is the engine's trainer, whose loss in eV gets the weights that make it alike."""
    gradient_weight, more = case
    ours = fit({"record_every": 1, "gradient_weight": gradient_weight} | more, "ours")
    train_surface(ours)
    train = read_points(ours.data)
    unit = float(
        train.energy[train.find_rows("train")].var(ddof=1) ** -1
    )  # all domains are [-1, 1]
    loss = {"energy": {"kind": "mse", "weight": unit}}
    if gradient_weight:
        loss["gradient"] = {"kind": "mse", "weight": unit * gradient_weight}
    theirs = fit({"method": "trainer", "loss": loss} | more, "theirs")
    assert train_surface(theirs) is None
    train_run(theirs)
    for our, their in zip(read_history(ours), read_history(theirs), strict=True):
        assert our["val"]["loss"] == pytest.approx(their["val"]["loss"], rel=1e-9)
        assert our["mae"] == pytest.approx(their["mae"], rel=1e-9)
        assert our["grad_norm"] == pytest.approx(their["grad_norm"], rel=1e-9)
        assert our["lr"] == their["lr"]
    a, b = read_result(ours)[0], read_result(theirs)[0]
    torch.testing.assert_close(a["transfers"], b["transfers"], rtol=1e-9, atol=1e-10)


@pytest.mark.slow
def test_a_limited_memory_changes_nothing(fit):
    """Shares that go through memory in pieces give the gradient of the whole."""
    plain, pieces = fit(folder="plain"), fit(folder="pieces", partition={"capacity": 7.0})
    train_surface(plain)
    train_surface(pieces)
    assert_close(plain, pieces)


def test_recorded_losses_are_those_of_the_kept_surface(fit):
    """What a line says, from the surface's own energies and gradients and NumPy.

    Gradients count in units of the spread of the energies over half a domain.
    """
    half = 0.45
    train = {"epochs": 3, "record_every": 3, "gradient_weight": 0.3}
    run = fit(train, domain=(-0.65, -0.65 + 2 * half))
    train_surface(run)
    module = build_task(run).module.double()
    module.load_state_dict(load_model(run.model)["weights"])
    data, (line,) = read_points(run.data), read_history(run)
    for split in ("train", "val"):
        rows = data.find_rows(split)
        actual = {k: v.numpy() for k, v in _predict(module, data.x[rows]).items()}
        scale = float(module.scale)
        errors = {k: actual[k] - getattr(data, k)[rows] for k in ("energy", "gradient")}
        unit = {"energy": scale, "gradient": scale / half}
        squares = {k: np.mean((e / unit[k]) ** 2) for k, e in errors.items()}
        loss = squares["energy"] + 0.3 * squares["gradient"]
        assert line[split] == pytest.approx({"loss": loss, **squares})
    assert line["mae"] == pytest.approx({k: np.abs(e).mean() for k, e in errors.items()})
    assert (line["epoch"], line["balance"]) == (3, 1.0)
    assert line["samples_per_s"] == pytest.approx(3 * 80 / line["seconds"])


def _predict(module, x):
    with torch.no_grad():
        return module({"x": torch.from_numpy(x)})


@pytest.mark.slow
def test_the_rate_of_the_paper(fit):
    """AdamW from 0.1, halved every so often, never below 1e-3: section 4 of Qiu et al."""
    halved = {"name": "step", "factor": 0.5, "every": 2, "final_fraction": 0.01}
    paper = {"optimizer": {"name": "adamw", "lr": 0.1, "weight_decay": 0.01}, "schedule": halved}
    more = {"epochs": 20, "record_every": 1, "precision": "32-true"}
    run = fit(paper | more, model={"rank": 4, "init": "random"})
    train_surface(run)
    rates = [line["lr"] for line in read_history(run)]
    assert rates == pytest.approx([max(0.1 * 0.5 ** (e // 2), 1e-3) for e in range(20)])
    assert rates[-1] == 1e-3
    assert load_model(run.model)["dtype"] == "float32"


@pytest.mark.slow
def test_the_best_weights_are_kept(fit):
    """With labels of noise the validation worsens at last."""

    def noise(x):
        return np.random.default_rng(1).normal(size=len(x))

    run = fit({"epochs": 120, "record_every": 5}, function=noise, gradient=None)
    summary = train_surface(run)
    losses = {line["epoch"]: line["val"]["loss"] for line in read_history(run)}
    assert summary["best_epoch"] == min(losses, key=losses.__getitem__) < 120
    assert summary["best_loss"] == min(losses.values())
    module, data = build_task(run).module.double(), read_points(run.data)
    module.load_state_dict(load_model(run.model)["weights"])
    rows = data.find_rows("val")
    error = _predict(module, data.x[rows])["energy"].numpy() - data.energy[rows]
    assert np.mean((error / float(module.scale)) ** 2) == pytest.approx(summary["best_loss"])


@pytest.mark.slow
def test_patience(fit):
    frozen = {"name": "step", "factor": 0.0, "every": 1, "final_fraction": 0.0}
    run = fit({"epochs": 50, "record_every": 5, "patience": 10, "schedule": frozen})
    assert train_surface(run)["epochs"] == 15
    assert train_surface(run)["best_epoch"] == 5


def test_training_without_validation(fit, points, project, tmp_path):
    data = points(evaluate_polynomial, 60)
    data = replace(data, split=np.where(data.split == 1, 2, data.split))
    run = replace(project(tmp_path / "bare", data, SECTIONS), device="cpu")
    summary = train_surface(run)
    assert read_history(run)[-1]["val"] is None
    assert summary["best_loss"] == min(line["train"]["loss"] for line in read_history(run))


@pytest.mark.slow
def test_a_training_starts_from_a_model(fit):
    first = fit({"epochs": 200, "record_every": 100}, "first")
    before = train_surface(first)
    small = {"epochs": 1, "optimizer": {"lr": 1e-6}}
    second, fresh = fit(small | {"start_from": str(first.model)}, "second"), fit(small, "fresh")
    train_surface(second)
    train_surface(fresh)
    assert read_history(second)[0]["val"]["loss"] == pytest.approx(before["best_loss"], rel=1e-2)
    assert read_history(fresh)[0]["val"]["loss"] > 100 * before["best_loss"]


def test_epochs_are_told(fit, monkeypatch):
    heard, run = [], fit()

    class Listener:
        from pipeline_core import hookimpl

        @hookimpl
        def epoch(self, record):
            heard.append(record)

    run.registry.manager.register(Listener())
    train_surface(run)
    assert heard == read_history(run)


@pytest.mark.slow
def test_too_few_points_are_told(fit, caplog):
    with caplog.at_level(logging.WARNING):
        few = train_surface(fit({"epochs": 1}, "few", n=60))
    assert "48 parameters are fitted to 40 numbers" in caplog.text
    assert "48 parameters" in few["warning"]
    enough = train_surface(fit({"epochs": 1, "gradient_weight": 1.0}, "enough", n=60))
    assert "warning" not in enough
    assert enough["fitted_numbers"] == 40 * 4
    assert warn_if_underdetermined(48, 48) is None


SOLVER = {"method": "solver"}
GRADIENTS = {"gradient_weight": 1.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("train", "more", "message"),
    [
        ({"precision": "bf16-mixed"}, {}, r"train\.precision: bf16-mixed; choose 32-true or 64"),
        ({"ema_decay": 0.9}, {}, r"train\.ema_decay"),
        ({"checkpoint_steps": 3}, {}, r"train\.checkpoint_steps"),
        ({"batch_by": "cost"}, {}, r"train\.batch_by"),
        ({"schedule": {"name": "plateau"}}, {}, r"train\.schedule: plateau.*record_every to 1"),
        ({"loss": {"energy": {}}}, {}, r"train\.loss"),
        (GRADIENTS | {"method": "trainer"}, {}, r"train\.gradient_weight"),
        (GRADIENTS, {"gradient": None}, r"data\.h5 has none; .*train\.gradient_weight"),
        (SOLVER | {"minutes": 1}, {}, r"train\.minutes: the solver takes no gradient steps"),
        (SOLVER, {}, r"train\.epochs: the solver takes no gradient steps"),
        (SOLVER, {"model": MODELS[1]}, r"model\.leaf_rank: the solver passes on the functions"),
        ({}, {"model": {"rank": "adaptive"}}, r"model\.rank: only method 'solver'"),
        ({"start_from": "nowhere.pt"}, {}, r"nowhere\.pt: no such file"),
        ({"start_from": "published:x"}, {}, "no published weights"),
        ({"profile": True}, {}, r"train\.profile: only method 'trainer'"),
    ],
)
def test_options_that_a_method_lacks(fit, train, more, message):
    with pytest.raises(ValueError, match=message):
        train_surface(fit(train, **more))


@pytest.mark.gpu
@pytest.mark.parametrize("gradient_weight", [0.0, 0.3])
def test_a_gpu_follows_the_cpu_and_no_step_waits_for_it(fit, monkeypatch, gradient_weight):
    """The oracle of the second is torch itself, which raises an error at a synchronisation."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    train = {"epochs": 60, "record_every": 30, "gradient_weight": gradient_weight}
    cpu, gpu = fit(train, "cpu"), fit(train, "gpu")
    train_surface(cpu)
    steps, step = [], Descent.step

    def watched(*args, **kwargs):
        steps.append(1)
        warm = len(steps) > 5  # the first steps compile and allocate
        torch.cuda.set_sync_debug_mode("error" if warm else "default")
        try:
            return step(*args, **kwargs)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(Descent, "step", watched)
    train_surface(replace(gpu, device="cuda"))
    assert len(steps) == 60
    assert_close(gpu, cpu, rtol=1e-8)
