"""Flows in the shared trainer: exact values reached, resumed and shared trainings, refusals.

The oracles are exact partition functions in two dimensions, trainings that were not interrupted and
ran on one rank, and a heat bath.
"""

import pytest
import torch

from forked_ranks import train_by_command
from pipeline_core.task import build_task
from pipeline_core.testing.projects import call
from pipeline_core.training.history import TIMES
from pipeline_core.training.model_file import load_model
from pipeline_gauge_flows.data import exact
from pipeline_gauge_flows.data.actions import ActionOptions, GaugeAction
from pipeline_gauge_flows.data.fermions.effective import EffectiveAction
from pipeline_gauge_flows.data.lattice import Lattice
from pipeline_gauge_flows.graph.layout import read_layout
from plugins.gauge_flows.small import make_run
from records import read_history
from tiers import run_first

SECTIONS = {
    "seed": 3,
    "model": {
        "layers": {"bins": 4, "hidden": [8], "loops": "learned", "staples": {"width": 2}},
        "action": {"beta": 2.0},
        "draws": {"train": 24, "val": 16},
    },
    "graph": {"lattice": {"extents": [4, 4]}, "masks": [{"mask": "direction", "sweeps": 1}]},
    "train": {"epochs": 4, "batch_size": 8, "precision": "64-true", "optimizer": {"lr": 0.01}},
}


def make_sections(**changes):
    return {
        name: {**SECTIONS[name], **changes.get(name, {})} if name != "seed" else 3
        for name in SECTIONS
    } | {name: changes[name] for name in changes.keys() - SECTIONS.keys()}


def read_result(run):
    kept = [{k: v for k, v in line.items() if k not in TIMES} for line in read_history(run)]
    return load_model(run.model)["weights"], kept


def compute_ess(terms):
    return terms["weight"] ** 2 / terms["weight_square"]


@pytest.mark.slow
@pytest.mark.parametrize("gradient", run_first(["path", "ordinary"]))
def test_an_interrupted_training_ends_as_if_it_had_not_been(tmp_path, gradient):
    """New configurations are drawn in each epoch, and the same ones again after a break."""
    half = make_sections(train={"epochs": 2, "gradient": gradient})
    whole = make_sections(train={"gradient": gradient})
    call(make_run(tmp_path / "parts", **half), "train")
    parts, once = make_run(tmp_path / "parts", **whole), make_run(tmp_path / "once", **whole)
    call(parts, "train")
    call(once, "train")
    (weights, history), (expected, records) = read_result(parts), read_result(once)
    assert history == records
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights.items())
    assert len({record["train"]["loss"] for record in records}) == 4


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("gradient", run_first(["path", "ordinary"]))
def test_two_ranks_follow_one(tmp_path, gradient):
    content = make_sections(train={"epochs": 2, "batch_size": 7, "gradient": gradient})
    alone = make_run(tmp_path / "alone", **content)
    call(alone, "train")
    run = make_run(tmp_path / "two", **content)
    train_by_command(tmp_path / "two", "flow", 2)
    (weights, history), (expected, records) = read_result(run), read_result(alone)
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-9, atol=1e-10)
    for ours, theirs in zip(history, records, strict=True):
        for split in ("train", "val"):
            assert ours[split] == pytest.approx(theirs[split], rel=1e-9)


def test_configurations_depend_on_their_numbers_alone(tmp_path):
    run = make_run(tmp_path, **SECTIONS)
    samples = build_task(run).samples("train")
    first, again = samples.of_epoch(3).batch([4, 5]), samples.of_epoch(3).batch([5])
    assert torch.equal(first["base_links"][1], again["base_links"][0])
    others = [samples.batch([5]), samples.of_epoch(4).batch([5]), samples.of_epoch(3).batch([6])]
    others.append(build_task(run).samples("val").of_epoch(3).batch([5]))
    assert all(not torch.equal(other["base_links"], again["base_links"]) for other in others)
    assert len(samples) == 24


def test_the_scale_of_weights_is_log_z_of_free_plaquettes():
    from pipeline_gauge_flows.training.objective import estimate_log_z

    wilson = EffectiveAction(ActionOptions(beta=2.0), Lattice((4, 4), 3))
    assert estimate_log_z(wilson) == pytest.approx(16 * 0.1230638999, rel=1e-8)
    assert estimate_log_z(wilson) == pytest.approx(exact.compute_torus_log_z(2.0, 3, 16), rel=1e-6)


@pytest.mark.slow
def test_weights_move_to_a_larger_volume(tmp_path):
    """And to another coupling: the shared trainer checks that the flow is the same."""
    small = make_run(tmp_path / "small", **SECTIONS)
    call(small, "train")
    larger = make_sections(
        model={"action": {"beta": 2.5}, "draws": {"train": 8, "val": 8}},
        graph={"lattice": {"extents": [8, 4]}},
        train={"epochs": 1, "start_from": str(small.model), "optimizer": {"lr": 1e-12}},
    )
    run = make_run(tmp_path / "large", **larger)
    call(run, "train")
    trained, start = load_model(run.model)["weights"], load_model(small.model)["weights"]
    for name, tensor in start.items():
        torch.testing.assert_close(trained[name], tensor, rtol=0, atol=1e-9)
    other = make_sections(graph={"masks": [{"mask": "direction", "sweeps": 2}]})
    other["train"] = larger["train"]
    with pytest.raises(ValueError, match="its weights do not fit"):
        call(make_run(tmp_path / "other", **other), "train")


ENSEMBLE = {
    "lattice": {"extents": [4, 4]},
    "action": {"beta": 2.0},
    "generate": {"method": "heatbath", "n_configurations": 60, "thermalisation": 20},
    "split": {"val": 0.2, "test": 0.2},
}


def remove_keys(section, *keys):
    return {key: value for key, value in section.items() if key not in keys}


@pytest.mark.slow
def test_a_flow_leads_from_one_coupling_to_another(tmp_path):
    content = make_sections(train={"gradient": "path", "batch_size": 12})
    content["model"] = remove_keys(content["model"], "draws") | {
        "action": {"beta": 4.0},
        "prior": "ensemble",
    }
    run = make_run(tmp_path, ENSEMBLE, **content)
    task = build_task(run)
    batch = task.samples("train").batch([0, 1])
    terms = task.objective.sums(task.module.double()(batch), batch)
    old, new = (GaugeAction(ActionOptions(beta=b), Lattice((4, 4), 3)) for b in (2.0, 4.0))
    expected = (new(batch["base_links"]) - old(batch["base_links"])).sum()
    torch.testing.assert_close(terms["reverse_kl"].detach(), expected)  # a fresh flow maps nothing
    assert abs(float(terms["log_weight"])) < 0.4 * float(expected.abs())  # its mean is left out
    call(run, "train")
    history = read_history(run)
    assert history[-1]["train"]["loss"] < history[0]["train"]["loss"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"prior": "ensemble"}}, r"draws: with the prior 'ensemble'"),
        ({"train": {"loss": {"energy": {}}}}, r"a flow is trained by train\.objective"),
        ({"train": {"precision": "bf16-mixed"}}, r"does not keep links in SU\(N\)"),
        ({"graph": {"lattice": {"extents": [4, 3]}}}, r"mask 'direction' repeats after 2 sites"),
        ({"graph": {"masks": [{"mask": "m4"}], "lattice": {"extents": [4, 6]}}}, r"multiple of 4"),
        ({"graph": {"lattice": None}}, r"no lattice: set graph\.lattice, or name a dataset"),
        ({"model": {"action": None}}, r"no action: set model\.action, or name a dataset"),
        ({"model": {"layers": {"kind": "residual", "bins": 3}}}, r"bins.*unknown key"),
        (
            {
                "model": {"layers": {"loops": "learned"}},
                "graph": {"masks": [{"mask": "location"}]},
            },
            r"model\.layers\.loops: .* graph\.masks has location only; add a mask",
        ),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        make_run(tmp_path, **make_sections(**changes))


@pytest.mark.slow
def test_the_group_is_that_of_the_dataset(tmp_path):
    dataset = {**ENSEMBLE, "lattice": {"extents": [4, 4], "n_colours": 2}}
    content = make_sections(graph={"lattice": {"extents": [8, 8]}})
    assert read_layout(make_run(tmp_path, dataset, **content)).lattice == Lattice((8, 8), 2)
    content["graph"]["lattice"] = {"extents": [8, 8], "n_colours": 3}
    with pytest.raises(ValueError, match=r"n_colours is 3, but the dataset has SU\(2\)"):
        make_run(tmp_path, dataset, **content)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "changes", "message"),
    [
        (None, {"model": {"prior": "ensemble"}}, r"starts from configurations, but the experiment"),
        (
            ENSEMBLE, {"model": {"prior": "ensemble"}, "graph": {"lattice": {"extents": [4, 8]}}},
            r"its configurations have the lattice",
        ),
    ],
)  # fmt: skip
def test_ensembles_that_do_not_fit_or_are_not_there_are_refused(
    tmp_path, dataset, changes, message
):
    content = make_sections(**changes)
    del content["model"]["draws"]
    with pytest.raises(ValueError, match=message):
        make_run(tmp_path, dataset, **content)
