"""What a flow and its rivals cost, and when a flow pays for its training."""

import json

import numpy as np
import pytest
import torch

from pipeline_gauge_flows.evaluation import cost as cost_module
from pipeline_gauge_flows.evaluation.cost import (
    compare_costs,
    compute_flow_cost,
    compute_training_cost,
    find_cheapest,
    read_training_seconds,
)
from pipeline_gauge_flows.evaluation.options import CostOptions
from plugins.gauge_flows.trained import call_evaluate

pytestmark = pytest.mark.filterwarnings("ignore:.*lossy_conversion")


@pytest.mark.slow
def test_costs_are_measured(identity):
    costs = CostOptions(updates=64)
    _, metrics = call_evaluate(identity, samples=1000, cost=costs)
    cost = metrics["flow"]["cost"]
    for name in ("heatbath", "hmc"):
        one = cost[name]
        expected = one["cpu_seconds"] * max(1, 2 * one["tau_int"])
        assert one["seconds_per_independent"] == pytest.approx(expected)
        assert one["acceptance"] > 0.5
    ess = metrics["flow"]["lattices"][0]["ess"]["value"]
    own = cost["flow"]["seconds_per_independent"]["reweighted"]
    assert own == pytest.approx(cost["flow"]["cpu_seconds"] / ess)
    # Here the heat bath needs a hundred times less.
    assert cost["rival"] == "heatbath"
    assert cost["flow_over_rival"] > 1
    assert cost["break_even"] is None
    assert metrics["headline"]["numbers"][-1]["title"] == "Independent configuration"


def test_a_flow_pays_for_its_training_only_where_it_is_cheaper():
    flow = {"seconds_per_independent": {"reweighted": 0.2, "chain": None}}
    costs = {"flow": flow, "hmc": {"seconds_per_independent": 0.7}, "training_cost": 100.0}
    assert compare_costs(costs) == pytest.approx(
        {"rival": "hmc", "flow_over_rival": 2 / 7, "break_even": 200.0}
    )
    costs["heatbath"] = {"seconds_per_independent": 0.1}
    assert compare_costs(costs) == {"rival": "heatbath", "flow_over_rival": 2.0, "break_even": None}
    still = {"flow": flow, "hmc": {"seconds_per_independent": None}, "training_cost": 1.0}
    assert compare_costs(still)["rival"] is None
    unknown = {"seconds_per_independent": {"reweighted": None, "chain": None}}
    expected = {"rival": "heatbath", "flow_over_rival": None, "break_even": None}
    assert compare_costs({**costs, "flow": unknown}) == expected


def test_a_training_costs_the_time_of_all_cores(identity, monkeypatch):
    cpu, made = torch.device("cpu"), {"device": "cpu", "ranks": 2, "threads": 3}
    seconds = read_training_seconds(identity)
    for change, cost in (({}, 6 * seconds), ({"device": "cuda"}, None)):
        content = {"provenance": json.dumps(made | change)}
        monkeypatch.setattr(cost_module, "load_model", lambda _, content=content: content)
        assert compute_training_cost(identity, cpu) == cost


def test_nothing_is_said_of_what_cannot_be_trusted():
    series = {name: np.full(4, 1e-3) for name in ("seconds", "cpu_seconds")}
    cost = compute_flow_cost(series, None, None, torch.device("cpu"))
    assert cost["seconds_per_independent"] == {"reweighted": None, "chain": None}
    assert find_cheapest({"flow": cost}) is None
    cost = compute_flow_cost(series, 0.5, 8.0, torch.device("cpu"))
    assert cost["seconds_per_independent"] == {"reweighted": 2e-3, "chain": 16e-3}
    assert find_cheapest({"flow": cost}) == 2e-3
