"""Projected epochs; oracle: epochs by hand and by brute force over all orders of the samples."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline_atoms.potential.task import count_rows
from pipeline_core.config.profile import Projection, SizeClass
from pipeline_core.config.sections import Link, PartitionOptions
from pipeline_core.profiling.projection import (
    describe_set,
    draw_sizes,
    project_epochs,
)
from pipeline_core.system.seeds import draw_order
from pipeline_core.training.balance.cost_model import CostModel

PARTS = ("compute", "communication", "idle")
LINK = Link(latency=1e-5, bandwidth=1e9)


def make_sizes(*atoms):
    atoms = np.array(atoms)
    return {"atom": atoms, "edge": 10 * atoms, "sample": np.ones(len(atoms), np.int64)}


def cluster(constant=0.0, gradient_bytes=4000, **per):
    """Costs of a rank, and times of the all-reduces of ranks."""
    return CostModel(constant, per or {"atom": 1e-3}), partial(LINK.time_ring, gradient_bytes)


def run_projection(known, machine, cost=count_rows, partition=None, **options):
    return project_epochs(
        SimpleNamespace(cost=cost),
        known,
        Projection(**options),
        partition or PartitionOptions(),
        "count",
        *machine,
        3,
    )


def test_equal_samples_share_the_time_exactly():
    result = run_projection(
        make_sizes(*[5] * 960),
        cluster(),
        atoms_per_rank=20.0,  # four samples a rank
        strategies=["random", "balanced", "pairing", "next_fit", "mace_bins"],
        strong=[1, 2, 8, 16],
    )
    assert len(result) == 4 * 5
    for record in result:
        ranks = record["ranks"]
        assert record["mode"] == "strong"
        assert record["samples"] == 960
        assert record["steps"] == 960 // (4 * ranks)
        assert record["idle"] == pytest.approx(0.0, abs=1e-12)
        assert record["compute"] == pytest.approx(960 * 5e-3 / ranks, rel=1e-12)
        adding = record["steps"] * LINK.time_ring(4000, ranks)
        assert record["communication"] == pytest.approx(adding, rel=1e-12)
        assert record["seconds"] == pytest.approx(sum(record[p] for p in PARTS), rel=1e-12)


def test_an_epoch_is_that_of_the_trainers_order():
    atoms = np.random.default_rng(0).choice([2, 30], 100)
    machine = cluster(constant=0.1, atom=1e-3, edge=2e-3)
    ranks, per_rank = 3, 4
    (result,) = run_projection(
        make_sizes(*atoms),
        machine,
        atoms_per_rank=per_rank * float(atoms.mean()),
        strategies=["random"],
        strong=[ranks],
    )
    order, slowest, busy = draw_order(100, 3, 0), [], []
    for begin in range(0, 100, ranks * per_rank):
        step = np.array_split(order[begin : begin + ranks * per_rank], ranks)
        times = [0.1 + sum(0.021 * atoms[i] for i in share) for share in step]
        slowest.append(max(times))
        busy.append(np.mean(times))
    assert result["steps"] == len(slowest)
    assert result["compute"] == pytest.approx(sum(busy), rel=1e-12)
    assert result["idle"] == pytest.approx(sum(slowest) - sum(busy), rel=1e-12)


def test_ranks_share_steps_of_the_same_size_and_pay_the_constant_in_each():
    found = run_projection(
        make_sizes(*[5] * 960),
        cluster(constant=0.25, gradient_bytes=0),
        batch_size=48,
        atoms_per_rank=20.0,
        strategies=["balanced"],
        strong=[1, 4],
        weak=[(2, 80), (4, 160)],
    )
    assert [(record["steps"], record["ranks"], record["samples"]) for record in found] == [
        (20, 1, 960),
        (20, 4, 960),
        (10, 2, 80),
        (10, 4, 160),
    ]
    assert [record["mode"] for record in found] == ["strong"] * 2 + ["weak"] * 2
    assert [record["compute"] for record in found[:2]] == pytest.approx([9.8, 20 * (0.25 + 0.06)])
    with pytest.raises(ValueError, match=r"'capped' needs partition.capacity"):
        run_projection(make_sizes(1, 2), cluster(), strategies=["capped"], strong=[2])


def test_bins_of_the_paper_hold_so_many_atoms_whatever_samples_cost():
    # Oracle: ten samples of 4 atoms and ten of 2 fill bins of 6 exactly, one of each.
    (record,) = run_projection(
        make_sizes(*[4, 2] * 10),
        cluster(atom=1.0, gradient_bytes=0),
        cost=lambda rows: np.arange(1.0, 21.0),
        atoms_per_rank=6.0,
        strategies=["mace_bins"],
        strong=[2],
    )
    assert (record["steps"], record["most_atoms"]) == (5, 6.0)
    assert (record["least_samples"], record["most_samples"]) == (2, 2)
    assert record["idle"] == pytest.approx(0.0)
    assert record["plan_seconds"] > 0
    # 23 samples in steps of 8 for two ranks: 4 and 4, 4 and 4, then 4 and 3, which does not count.
    sizes, options = make_sizes(*[5] * 23), {"strategies": ["random"], "strong": [2]}
    (record,) = run_projection(sizes, cluster(), atoms_per_rank=20.0, **options)
    assert (record["least_samples"], record["most_samples"]) == (4, 4)
    assert record["most_atoms"] == 20.0


def test_the_composition_is_that_of_the_samples_that_are_drawn():
    classes = [
        SizeClass(name="a", samples=30, atoms=(1, 4), edges_per_atom=2.0),
        SizeClass(name="b", samples=50, atoms=(7, 7), edges_per_atom=2.0),
        SizeClass(name="a", samples=20, atoms=(5, 9), edges_per_atom=2.0),
    ]
    known = make_sizes(3)
    result = describe_set(known, classes, 5)
    drawn = draw_sizes(known, classes, None, 5)["atom"]
    of_a = np.concatenate([drawn[:30], drawn[80:]])
    assert result["a"] == {
        "samples": 50,
        "share": 0.5,
        "least": of_a.min(),
        "most": of_a.max(),
    }
    assert result["b"] == {"samples": 50, "share": 0.5, "least": 7, "most": 7}
    assert describe_set(known, [], 5) == {}


def test_fitted_costs_are_what_ranks_are_balanced_by():
    atoms = np.random.default_rng(2).integers(1, 200, 600)
    machine, options = cluster(), {"strategies": ["balanced"], "strong": [4]}

    def idle(cost):
        partition = PartitionOptions(cost=cost)
        (record,) = run_projection(
            make_sizes(*atoms),
            machine,
            lambda sizes: np.ones(len(sizes["atom"])),  # knows nothing of sizes
            partition,
            **options,
        )
        return record["idle"]

    assert idle("fitted") < 0.1 * idle("given")


def test_samples_are_drawn_without_repetition_while_there_are_enough():
    known = make_sizes(*range(1, 101))

    assert draw_sizes(known, [], None, 0)["atom"].tolist() == list(range(1, 101))
    some = draw_sizes(known, [], 60, 0)
    assert len(set(some["atom"])) == 60
    assert (some["edge"] == 10 * some["atom"]).all()
    assert (draw_sizes(known, [], 60, 0)["atom"] == some["atom"]).all()
    assert (draw_sizes(known, [], 60, 1)["atom"] != some["atom"]).any()
    assert len(draw_sizes(known, [], 250, 0)["atom"]) == 250


def test_classes_of_sizes():
    known = make_sizes(10, 30) | {"angle": np.array([20, 60])}
    drawn = draw_sizes(
        known,
        [
            SizeClass(name="water", samples=2000, atoms=(9, 75), edges_per_atom=30.5),
            SizeClass(name="known", samples=50, atoms=(1, 1)),
        ],
        None,
        0,
    )
    atoms, edges, angles = (drawn[kind][:2000] for kind in ("atom", "edge", "angle"))
    assert set(atoms) == set(range(9, 76))  # the chance to miss one of 67 is below 1e-11
    assert atoms.mean() == pytest.approx(42, abs=5 * 19.3 / np.sqrt(2000))
    assert np.abs(edges - 30.5 * atoms).max() <= 0.5
    assert (angles == 2 * atoms).all()
    assert (drawn["sample"] == 1).all()
    assert set(drawn["atom"][2000:]) == {10, 30}
