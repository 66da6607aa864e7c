"""Flows between actions with quarks, by exact determinants, and flows of pseudofermions with them.

Oracles: derivatives by differences; the mean of determinants over an ensemble of gluons, which is
the ratio of both Z; for noise shots the exact determinants.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from pipeline_core.testing.projects import call
from pipeline_gauge_flows.data.datasets import ActionOptions, FermionOptions
from pipeline_gauge_flows.data.ensembles.storage import Ensemble
from pipeline_gauge_flows.data.fermions.determinant import compute_log_determinant
from pipeline_gauge_flows.data.fermions.effective import EffectiveAction
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.evaluation.inputs import load_flow
from pipeline_gauge_flows.model.network import GaugeModule
from pipeline_gauge_flows.training.objective import Divergence
from pipeline_gauge_flows.training.samples import make_batch
from plugins.gauge_flows.small import draw_links, load_project, make_flow
from plugins.gauge_flows.trained import IDLE, make_fresh_run

LATTICE = Lattice((4, 4), 2)
QUARKS = FermionOptions(kappa=0.2, two_kappa_mu=0.1)
THEORY = ActionOptions(beta=2.0, fermions=QUARKS)
SIGMAS = 4.0
QUARK_OPTIONS = {"kappa": 0.2, "two_kappa_mu": 0.1}
DATASET = {
    "lattice": {"extents": [4, 4], "n_colours": 2},
    "action": {"beta": 2.0, "fermions": QUARK_OPTIONS},
    "generate": {
        "method": "hmc", "n_steps": [2, 4], "n_configurations": 256, "chains": 64, "start": "cold",
        "thermalisation": 10, "separation": 2,
    },
    "split": {"val": 0.1, "test": 0.6},
}  # fmt: skip


@pytest.mark.parametrize("by_path", [False, True], ids=["ordinary", "path"])
def test_gradients_pass_through_determinants(by_path):
    """Those by the weights, of log q + S at fixed links, less the score's for path gradients."""
    base = EffectiveAction(ActionOptions(beta=1.5), LATTICE)
    target = EffectiveAction(THEORY, LATTICE)
    flow = make_flow("residual", LATTICE, [("direction", 1)])
    batch, step = make_batch(draw_links(LATTICE, 2), LATTICE), 1e-5
    module, objective = (
        GaugeModule(flow, base, by_path),
        Divergence(target, base, 0.0),
    )
    loss = objective.sums(module(batch), batch)["reverse_kl"]
    weights = list(flow.parameters())
    gradient = torch.autograd.grad(loss, weights)
    along = [torch.randn(p.shape, generator=torch.Generator().manual_seed(3)) for p in weights]
    slope = sum((a * g).sum() for a, g in zip(along, gradient, strict=True))
    frozen = make_flow("residual", LATTICE, [("direction", 1)])

    def compute_loss(t: float) -> torch.Tensor:
        with torch.no_grad():
            for p, q, a in zip(weights, frozen.parameters(), along, strict=True):
                p.copy_(q + t * a)
            moved, log_det = flow(batch["base_links"])
            if not by_path:
                return (target(moved) - log_det).sum()
            # The density with other weights than those that move the links.
            before, back = frozen.inverse(moved)
            return (target(moved) - base(before) + back).sum()

    differences = (compute_loss(step) - compute_loss(-step)) / (2 * step)
    assert_close(slope, differences, rtol=1e-6, atol=1e-6, check_dtype=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A flow from quarks to quarks, and as a variant one of their pseudofermions."""
    folder = tmp_path_factory.mktemp("quarks")
    train = {"epochs": 3, "batch_size": 16, "gradient": "path", "optimizer": {"lr": 1e-2}}
    conditional = {
        "start_from": "variant:base", "objective": "pseudofermions", "gradient": "ordinary",
        "epochs": 3, "optimizer": {"lr": 5e-4},
    }  # fmt: skip
    base = make_fresh_run(
        folder,
        DATASET,
        model={
            "prior": "ensemble",
            "layers": {"kind": "residual", "hidden": [4]},
            "action": {"beta": 2.6, "fermions": QUARK_OPTIONS},
            "pseudofermions": {},
        },
        train=train,
        evaluate={"cost": None, "resamples": 100},
        variants={
            "conditional": {"train": conditional},
            "alone": {
                "model": {"pseudofermions": None},
                "train": {"start_from": "variant:base", **IDLE},
            },
            "again": {"train": {"start_from": "variant:alone", **IDLE}},
        },
    )
    return base, train_variant(folder, "conditional")


def train_variant(folder, name):
    run = replace(load_project(folder).load_experiment("flow").runs[name], device="cpu")
    for stage in ("graph", "partition", "train"):
        call(run, stage)
    return run


def evaluate(run):
    call(run, "evaluate")
    return json.loads(run.metrics.read_text())["flow"]["lattices"][0]


@pytest.mark.slow
def test_both_flows_beat_the_identity(trained):
    base, second = trained
    marginal, report = evaluate(base), evaluate(second)
    before, after = marginal["identity"]["ess"], marginal["ess"]
    assert after["value"] > before["value"] + 2 * (before["error"] + after["error"])
    # The flow of links is that of the other variant.
    assert report["ess"]["value"] == pytest.approx(after["value"], rel=1e-9)
    shots = report["pseudofermions"]
    for mean in shots["mean"].values():
        assert abs(mean["value"] - 1) < SIGMAS * mean["error"]
    assert shots["given_links"]["gain_sigmas"] > 2
    assert [one["shots"] for one in shots["by_shots"]] == [1, 2, 4, 8]
    noisy = [one["identity"]["value"] for one in shots["by_shots"]]
    assert noisy[0] < noisy[-1] < after["value"] + after["error"]


@pytest.mark.slow
def test_training_one_flow_leaves_the_other_alone(trained):
    weights = [load_flow(run, torch.device("cpu"))[0].module.state_dict() for run in trained]
    changed = {name for name in weights[0] if not torch.equal(weights[0][name], weights[1][name])}
    assert changed
    assert all(name.startswith("pseudofermions.") for name in changed)


@pytest.mark.slow
def test_a_flow_of_links_goes_on_with_one_of_pseudofermions_and_without(trained, caplog):
    folder = trained[0].folder.parents[2]
    with caplog.at_level(logging.INFO):
        runs = [trained[0], *(train_variant(folder, name) for name in ("alone", "again"))]
    assert "taken without its pseudofermions (pseudofermions." in caplog.text
    assert "taken without its pseudofermions (none); pseudofermions that are not" in caplog.text
    weights = [load_flow(run, torch.device("cpu"))[0].module.state_dict() for run in runs]
    assert weights[1].keys() < weights[0].keys() == weights[2].keys()
    for name, tensor in weights[1].items():
        for other in weights[::2]:
            assert_close(tensor.float(), other[name].float(), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_from_gluons_to_quarks_the_mean_weight_is_that_of_determinants(tmp_path):
    """<|det M|^2> over gluons is the ratio of both Z; a flow that maps does not change it."""
    gluons = {**DATASET, "action": {"beta": 2.0}}
    gluons["generate"] = {"method": "heatbath", "n_configurations": 512, "chains": 8}
    run = make_fresh_run(
        tmp_path,
        gluons,
        model={
            "prior": "ensemble",
            "layers": {"kind": "residual", "hidden": [4]},
            "action": {"beta": 2.0, "fermions": QUARK_OPTIONS},
        },
        train={"epochs": 2, "batch_size": 16, "gradient": "path", "optimizer": {"lr": 3e-3}},
        evaluate={"cost": None, "resamples": 100},
    )
    report = evaluate(run)
    with Ensemble(run.data) as ensemble:
        every = ensemble.read_links(range(len(ensemble)))
    weight = (2 * compute_log_determinant(every, LATTICE, **QUARK_OPTIONS)).exp()
    expected, error = weight.mean().log().item(), (weight.std() / weight.mean()).item() / 512**0.5
    ours = report["log_z"]["estimate"]
    assert abs(ours["value"] - expected) < SIGMAS * (ours["error"] ** 2 + error**2) ** 0.5
    assert ours["error"] < 0.05


def make_refused(folder, **model):
    options = {"prior": "ensemble", "action": {"beta": 2.6}, "pseudofermions": {}, **model}
    few = {"method": "heatbath", "n_configurations": 8, "chains": 1, "thermalisation": 1}
    gluons = {**DATASET, "action": {"beta": 2.0}, "generate": few}
    return make_fresh_run(folder, gluons, model=options)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({}, "both have quarks; set `fermions` there"),
        ({"prior": "haar"}, "there are none under the prior 'haar'"),
        ({"pseudofermions": {"n_layers": 3}}, "multiple of 2"),
    ],
)
def test_pseudofermions_need_quarks(tmp_path, model, message):
    with pytest.raises(ValueError, match=message):
        make_refused(tmp_path, **model)
