"""Plans of trainings whose structures ranks divide.

Oracles: lines that parts follow, what a division gives each rank, a real training.
"""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from pipeline_atoms.testing.example_data import ALLOYS
from pipeline_core.cli.plan import format_plan
from pipeline_core.config.sections import Link
from pipeline_core.profiling import layout, parts, planning
from pipeline_core.profiling.parts import FittedParts, MeasuredPart
from pipeline_core.profiling.planning import merge_plans, plan_training
from pipeline_core.project.project import Project
from pipeline_core.stages.builtin import load_registry
from pipeline_core.task import build_task
from pipeline_core.testing.projects import prepare, write_project
from pipeline_core.training.balance.cost_model import CostModel

NETWORK = {"alpha": 1e-5, "bandwidth": 1e9, "source": "measured between 2 processes here"}
SECTIONS = {
    "model": {"channels": 4, "lmax": 2, "correlation": 1},
    "graph": {"cutoff": 4.0},
    "partition": {"parts": "graph"},
}

SOURCES = [{"path": "alloys.extxyz"}, {"path": "alloys.extxyz", "repeat": [2, 2, 1]}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan")
    large = {**ALLOYS, "sources": SOURCES}
    write_project(path, "mace", SECTIONS)
    dataset = path / "workflows/datasets/samples.yaml"
    dataset.write_text(json.dumps(large))
    prepare(open_run(path))
    return path


def open_run(folder):
    project = Project(folder / "workflows", folder / "results", load_registry())
    return project.run("mace/conformance", "base")


@pytest.mark.slow
def test_a_plan_of_a_run(folder, monkeypatch):
    monkeypatch.setattr(layout, "measure_network", lambda device, n_ranks: NETWORK)
    monkeypatch.setattr(parts, "_SECONDS", float("inf"))  # on slow machines, too
    before = sorted(folder.rglob("*"))
    content = plan_training(partial(open_run, folder), [1, 2])
    assert sorted(folder.rglob("*")) == before, "a plan writes nothing"
    one, two = content["ranks"]
    assert one["divided"] == 0
    atoms = build_task(open_run(folder)).samples("train").sizes()["atom"]
    assert two["divided"] == (atoms == 16).sum(), "small structures are taken whole"
    assert one["parts"]["communication"] == 0.0
    assert two["parts"]["communication"] > 0.0
    for record in (one, two):
        assert len(record["memory_of_ranks"]) == len(record["seconds_of_ranks"]) == record["ranks"]
        assert record["memory"] == max(record["memory_of_ranks"])
        assert record["step_s"] * record["steps"] == pytest.approx(record["epoch_s"])
        assert record["efficiency"] == pytest.approx(record["balance"] * record["communication"])
    sizes = [part["own"] for part in content["measured"]]
    assert sizes == sorted(sizes)
    assert all(part["edge"] > 0 for part in content["measured"])
    text = format_plan(json.loads(json.dumps(content)))
    assert max(map(len, text.splitlines())) <= 80
    assert "own atoms, each alone" in text


def test_what_cannot_be_divided_is_planned_as_whole_samples(folder, monkeypatch):
    """As the training does it with `parts: auto`; with `graph` it is an error there, too."""

    def refuse(*_):
        raise ValueError("cannot be divided")

    class Planner:
        def __init__(self, *_):
            pass

        def is_divided(self, layout):
            return layout.ranks > 1

        def plan(self, layouts, load):
            return {"ranks": [{"ranks": one.ranks, "epoch_s": 1.0} for one in layouts]}

    monkeypatch.setattr(planning, "plan_domains", refuse)
    monkeypatch.setattr(planning, "_Planner", Planner)
    run = open_run(folder)
    with pytest.raises(ValueError, match="cannot be divided"):
        plan_training(lambda: run, [1, 2])
    partition = run.sections["partition"].model_copy(update={"parts": "auto"})
    run = replace(run, sections=dict(run.sections) | {"partition": partition})
    content = plan_training(lambda: run, [1, 2])
    assert [record["ranks"] for record in content["ranks"]] == [1, 2]


def test_plans_of_other_numbers_of_ranks_are_one():
    plans = [
        {"networks": {"here, 2 ranks": 1}, "ranks": [{"ranks": 1}, {"ranks": 4}]},
        {"networks": {"here, 3 ranks": 2}, "measured": [], "ranks": [{"ranks": 2}]},
    ]
    merged = merge_plans(plans)
    assert [record["ranks"] for record in merged["ranks"]] == [1, 2, 4]
    assert merged["networks"] == {"here, 2 ranks": 1, "here, 3 ranks": 2}
    assert merged["measured"] == []
    # Messages take latency and bandwidth: 40 bytes of an atom of the halo, and six exchanges with
    # two ranks each.
    part = MeasuredPart(50, 100, 0.1, 1000, received=4000, exchanges=6)
    fitted = FittedParts({}, [part], CostModel(0.0, {}), None, None)
    counted = {"halo": np.array([10, 30]), "peers": np.array([2, 1])}
    link = Link(latency=1e-3, bandwidth=1e6)
    expected = 6 * 2 * 1e-3 + 30 * 40 / 1e6
    assert fitted.predict_messages(counted, link) == pytest.approx(expected)
