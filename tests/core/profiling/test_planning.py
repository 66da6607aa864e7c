"""Plans of trainings. Oracles: what the toy model sleeps, and balances by hand."""

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline_core.cli.plan import format_plan, format_seconds
from pipeline_core.profiling import layout, planning
from pipeline_core.profiling.planning import Layout, plan_training
from pipeline_core.profiling.projection import predict_busy, simulate
from pipeline_core.profiling.side_by_side import Measured
from pipeline_core.training.balance.cost_model import CostModel
from pipeline_kernels import packing
from tiers import exhaustive
from toy_potential import load_run_on_cpu, make_run, sum_edges

NETWORK = {
    "alpha": 1e-5,
    "bandwidth": 1e9,
    "source": "measured between 2 processes here",
    "sizes": [],
    "seconds": [],
}
SLEEP = 2e-4  # s an edge


@pytest.fixture
def load(tmp_path, monkeypatch):
    """What loads a training whose model sleeps, on two cores."""
    monkeypatch.setattr(layout, "measure_network", lambda device, n_ranks: NETWORK)
    monkeypatch.setattr(planning, "_count_units", lambda device: 2)
    model = {"n_train": 40, "seconds_per_edge": SLEEP}
    make_run(tmp_path, {"batch_size": 8, "epochs": 10}, model=model)
    return partial(load_run_on_cpu, tmp_path)


@pytest.fixture(params=[False, pytest.param(True, marks=exhaustive)], ids=["known", "measured"])
def steps(request, monkeypatch):
    """Steps of ranks side by side: as long as the model sleeps, or measured with processes."""
    if not request.param:
        monkeypatch.setattr(planning, "measure_side_by_side", sleep_side_by_side)


def sleep_side_by_side(load, n_ranks, n_processes, device, threads):
    edges = sum_edges(load(), n_ranks)[:, :n_processes]
    together = SLEEP * edges.max(1).mean() + 2e-3 if n_processes > 1 else None
    return Measured({"edge": edges.ravel()}, SLEEP * edges.ravel(), 2**20, together)


@pytest.mark.slow
@pytest.mark.usefixtures("steps")
def test_steps_are_predicted_from_measured_ones(load):
    run = load()
    before = sorted(run.folder.rglob("*"))
    content = plan_training(load, [1, 2, 4], nodes=2)
    assert content["networks"].keys() == {"between nodes"}
    assert sorted(run.folder.rglob("*")) == before, "a plan writes nothing"
    assert content["networks"]["between nodes"]["source"] == "assumed"
    assert content["compute"].keys() == {"2 a rank, 1 at once", "1 a rank, 2 at once"}
    for record in content["ranks"]:
        n = record["ranks"]
        edges = sum_edges(run, n)
        # The model sleeps so long for its slowest rank; a busy machine only adds to it.
        assert record["step_s"] > 0.8 * SLEEP * edges.max(1).mean()
        assert record["steps"] == 5
        assert record["nodes"] == min(2, n)
        assert record["epoch_s"] == pytest.approx(5 * record["step_s"])
        assert record["efficiency"] == pytest.approx(record["balance"] * record["communication"])
        hours = 10 * record["epoch_s"] / 3600
        assert record["unit_hours"] == pytest.approx(record["units"] * hours)
    assert content["ranks"][0]["speedup"] == 1.0
    text = format_plan(json.loads(json.dumps(content)))
    assert max(map(len, text.splitlines())) <= 80
    assert "between nodes: 20 us, 10 GB/s, assumed" in text


@pytest.mark.slow
@pytest.mark.usefixtures("steps")
def test_adding_gradients_lasts_as_long_as_in_steps_that_ranks_do_together(load):
    content = plan_training(load, [1, 2])
    assert content["networks"].keys() == {"here, 2 ranks"}
    assert content["networks"]["here, 2 ranks"]["source"] == "steps of 2 ranks here"
    assert content["networks"]["here, 2 ranks"]["alpha"] >= NETWORK["alpha"]
    one, two = content["ranks"]
    assert one["parts"]["communication"] == 0.0
    assert two["parts"]["communication"] > 0.0


def test_cores_are_shared_by_more_ranks_than_there_are():
    two = Layout(ranks=2, nodes=1, units=2)
    assert (two.units_per_rank, two.at_once, two.used_units) == (1, 2, 2)
    four = Layout(ranks=4, nodes=1, units=2)
    assert (four.units_per_rank, four.at_once, four.used_units) == (1, 2, 2)
    assert (two.beside, four.beside, Layout(ranks=64, nodes=1, units=2).beside) == (2, 4, 4)
    gpus = Layout(ranks=4, nodes=1, units=4, on_gpus=True)
    assert (gpus.beside, gpus.adding) == (1, 4)
    spread = Layout(ranks=4, nodes=2, units=8)
    assert (spread.units_per_rank, spread.at_once, spread.used_units) == (4, 2, 16)


@pytest.mark.parametrize(
    ("nodes", "at_once", "expected"),
    [
        (1, None, 7.0),  # the slowest rank
        (1, 4, 7.0),
        (1, 2, 7.0),  # 12 s of work on two cores
        (1, 1, 12.0),
        (2, 1, 10.0),  # the machine of the first two ranks
    ],
)
def test_a_step_ends_when_the_last_core_is_done(nodes, at_once, expected):
    plan, sizes = packing.Plan(np.arange(4), np.arange(5), 4), {"atom": np.array([3, 7, 1, 1])}
    busy = predict_busy(plan, sizes, CostModel(0.0, {"atom": 1.0}))
    assert simulate(busy, 0.0, nodes, at_once).seconds == pytest.approx(expected)


def test_all_reduces_are_added_to_each_step():
    epoch = simulate(np.array([[1.0, 1.0], [2.0, 1.0]]), 2.5)
    assert (epoch.communication, epoch.seconds) == (5.0, 8.0)
    assert (epoch.compute, epoch.idle) == (2.5, 0.5)


def test_trainings_that_it_does_not_know_are_refused(tmp_path):
    run = make_run(tmp_path)
    for own in (SimpleNamespace(uses_shared_trainer=False), SimpleNamespace(penalty=1.0)):
        with pytest.raises(ValueError, match="trains this one by itself"):
            planning._require_shared_trainer(run, own)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "12.3 ms"), (1.5, "1.5 s"), (90, "90 s"), (600, "10 min"), (9000, "2.5 h")],
)
def test_times_have_the_unit_that_suits_them(seconds, text):
    assert format_seconds(seconds) == text
