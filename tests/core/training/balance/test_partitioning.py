"""The stage `partition`: costs, evaluation batches, forecast of balance.

Oracles: for the shares of a step the shuffled order of the epoch and `assign_by_lpt`; for the
forecast that one rank is always balanced, and where there are more ranks than samples the largest
sample alone sets the time.
"""

import json
import time
from dataclasses import replace

import h5py
import numpy as np
import pytest

import toy_potential as toy
from pipeline_core.config.sections import PartitionOptions
from pipeline_core.stages.partition import partition
from pipeline_core.system.seeds import draw_order
from pipeline_core.task import build_task
from pipeline_core.training.balance.partitioning import WAYS, Shares, read_shares, write_partition
from pipeline_kernels.packing import assign_by_lpt
from resealed import edit_sealed


def compute_expected_costs(split, n):
    sizes = toy.ToySamples(range(split, split + n), False, None).sizes()
    return sizes["atom"] + sizes["edge"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run whose partition nobody changes."""
    return toy.make_run(tmp_path_factory.mktemp("plain"))


def test_costs_and_sizes_of_all_splits(plain):
    for split, first, n in (("train", 0, 13), ("val", 1000, 5)):
        shares = read_shares(plain.partition, split, n)
        assert shares.costs.tolist() == compute_expected_costs(first, n).tolist()
        made = [toy.sample(first + number, False) for number in range(n)]
        assert shares.sizes.keys() == {"atom", "edge"}
        assert shares.sizes["atom"].tolist() == [len(sample["positions"]) for sample in made]
        assert shares.sizes["edge"].tolist() == [len(sample["edge_index"]) for sample in made]
        assert all(rows.dtype == np.int64 for rows in shares.sizes.values())
    assert read_shares(plain.partition, "test", 0).list_batches() == []
    assert read_shares(plain.partition, "test", 0).sizes == {}
    with pytest.raises(ValueError, match="costs of 13 train samples, the data have 12"):
        read_shares(plain.partition, "train", 12)


def test_files_of_plugins_need_only_costs(tmp_path):
    run = toy.make_run(tmp_path, partition={"cost": "fitted"})
    assert read_shares(run.partition, "train", 13).cost == "fitted"
    with edit_sealed(run.partition) as file:
        for name in ("strategy", "cost"):
            del file.attrs[name]
        for split in ("train", "val", "test"):
            del file[f"{split}/sizes"]
    shares = read_shares(run.partition, "train", 13)
    assert (shares.strategy, shares.cost, shares.sizes) == ("balanced", "given", {})
    assert shares.costs.tolist() == compute_expected_costs(0, 13).tolist()


@pytest.mark.parametrize("n_ranks", [1, 2, 7])
def test_evaluation_batches_hold_each_sample_once(tmp_path, n_ranks):
    run = toy.make_run(tmp_path, partition={"capacity": 50.0})
    shares = read_shares(run.partition, "train", 13)
    batches = [batch for rank in range(n_ranks) for batch in shares.list_batches(rank, n_ranks)]
    assert sorted(np.concatenate(batches)) == list(range(13))
    assert all(shares.costs[batch].sum() <= 50 for batch in batches)
    assert shares.capacity == 50
    alone = sorted(batch.tolist() for batch in shares.list_batches())
    assert sorted(batch.tolist() for batch in batches) == alone  # fixed for any number of ranks


def test_a_million_samples_are_put_into_batches_in_seconds():
    bins = np.arange(1_000_000) // 16
    shares = Shares(np.ones(len(bins)), bins, np.inf)
    begin = time.process_time()
    batches = shares.list_batches()
    assert time.process_time() - begin < 10  # 30 where each batch looks at all samples
    assert all(
        np.array_equal(batch, np.flatnonzero(bins == bins[batch[0]])) for batch in batches[:9]
    )


def test_summary_and_forecast(tmp_path):
    run = toy.make_run(
        tmp_path, model={"n_train": 200}, partition={"ranks": [1, 4], "capacity": 30}
    )
    summary = partition(run)
    assert summary["samples"] == {"train": 200, "val": 5, "test": 0}
    assert summary["largest_cost"] == 36  # 6 atoms and 30 edges
    assert summary["above_capacity"] > 0
    with h5py.File(run.partition) as file:
        one, four = json.loads(file.attrs["balance"])
    assert one["ranks"] == 1
    assert one.keys() == four.keys() == {"ranks", *WAYS}
    assert all(one[way]["efficiency"] == 1 for way in WAYS)
    assert four["random"]["efficiency"] < 0.95
    for way in ("balanced", "balanced_by_cost"):
        assert 0.99 < four[way]["efficiency"] <= 1
    assert four["random"]["efficiency"] < four["pairing"]["efficiency"] < 1
    assert four["mace_bins"]["efficiency"] > four["next_fit"]["efficiency"]
    assert four["balanced_by_cost"]["variation"] < four["balanced"]["variation"]
    assert four["capped"]["deferred"] > 0 == four["balanced"]["deferred"]
    assert summary["efficiency"]["4 ranks"]["balanced"] == four["balanced"]["efficiency"]


def test_shares_of_the_first_step(tmp_path):
    run = toy.make_run(tmp_path, model={"n_train": 100}, partition={"ranks": [1, 2, 8, 9]})
    partition(run)
    with h5py.File(run.partition) as file:
        one, two, eight, nine = json.loads(file.attrs["balance"])
    costs = compute_expected_costs(0, 100)
    window = draw_order(100, run.seed, 0)[:32]
    ranks = assign_by_lpt(costs[window], 2)
    for rank, share in enumerate(two["balanced"]["first_step"]):
        assert sorted(share) == sorted(costs[window[ranks == rank]])
    assert [len(share) for share in two["random"]["first_step"]] == [16, 16]
    assert sorted(one["pairing"]["first_step"][0]) == sorted(costs[window[:16]])
    assert all(len(eight[way]["first_step"]) == 8 for way in eight.keys() & WAYS.keys())
    first = [sum(share) for share in two["balanced"]["first_step"]]
    assert two["balanced"]["loads"][0] == pytest.approx(first)
    assert [len(two["random"]["loads"]), len(nine["random"].get("loads", ()))] == [3, 0]
    assert not any("first_step" in nine[way] for way in nine.keys() & WAYS.keys())


def test_the_samples_of_a_rank_are_those_asked_for(tmp_path):
    options = {"ranks": [2, 8], "samples_per_rank": 40}
    run = toy.make_run(tmp_path, model={"n_train": 200}, partition=options)
    with h5py.File(run.partition) as file:
        two, eight = json.loads(file.attrs["balance"])
    assert [len(share) for share in two["random"]["first_step"]] == [40, 40]
    assert np.shape(two["random"]["loads"]) == (2, 2)
    assert "first_step" not in eight["random"]  # 320 samples a step are too many to be listed
    assert np.shape(eight["random"]["loads"]) == (1, 8)


def test_the_strategy_reaches_the_trainer(tmp_path):
    run = toy.make_run(tmp_path, partition={"strategy": "mace_bins"})
    assert read_shares(run.partition, "train", 13).strategy == "mace_bins"
    with edit_sealed(run.partition) as file:
        file.attrs["strategy"] = "luck"
    with pytest.raises(ValueError, match="unknown strategy 'luck'; run the stage 'partition'"):
        read_shares(run.partition, "train", 13)


def test_capped_needs_a_capacity(tmp_path):
    run = toy.make_run(tmp_path, partition={"ranks": [2]})
    assert partition(run)["efficiency"]["2 ranks"].keys() == WAYS.keys() - {"capped"}
    with pytest.raises(ValueError, match=r"'capped' needs a capacity; set partition\.capacity"):
        PartitionOptions(strategy="capped")


@pytest.mark.parametrize("strategy", ["random", "pairing", "next_fit", "mace_bins"])
def test_fitted_costs_are_for_balanced_shares(strategy):
    message = f"no influence on the strategy '{strategy}'; set partition.cost to 'given'"
    with pytest.raises(ValueError, match=message):
        PartitionOptions(strategy=strategy, cost="fitted")


def test_fitted_costs_need_sizes(tmp_path, monkeypatch):
    run = toy.make_run(tmp_path)
    monkeypatch.setattr(toy.ToySamples, "sizes", lambda self: {"sample": np.ones(len(self), int)})
    task = replace(build_task(run), cost=lambda sizes: 1.0 * sizes["sample"])
    write_partition(run, task, PartitionOptions())
    assert read_shares(run.partition, "train", 13).sizes == {}
    with pytest.raises(ValueError, match=r"needs sizes to fit times to.*set it to 'given'"):
        write_partition(run, task, PartitionOptions(cost="fitted"))


def test_a_dataset_smaller_than_a_step_can_be_forecast(plain):
    summary = write_partition(plain, build_task(plain), PartitionOptions(ranks=[64]))
    costs = compute_expected_costs(0, 13)
    expected = costs.mean() * 13 / 64 / costs.max()
    assert summary["efficiency"]["64 ranks"]["balanced"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("cost", lambda costs: np.where(np.arange(13) == 2, -1.0, costs)),
        ("cost", lambda costs: np.where(np.arange(13) == 2, np.nan, costs)),
        ("cost", lambda costs: costs[:-1]),
        ("bin", lambda bins: np.where(np.arange(13) == 2, 10**6, bins)),
        ("bin", lambda bins: bins - 1),
        ("bin", lambda bins: bins.astype(np.float64)),
        ("sizes/atom", lambda rows: rows[:-1]),
    ],
)
def test_what_contradicts_itself_is_refused(tmp_path, name, change):
    run = toy.make_run(tmp_path)
    with edit_sealed(run.partition) as file:
        changed = change(file[f"train/{name}"][:])
        del file[f"train/{name}"]
        file[f"train/{name}"] = changed
    with pytest.raises(ValueError, match=r"contradicts itself; run the stage 'partition' again"):
        read_shares(run.partition, "train", 13)
    assert read_shares(run.partition, "val", 5).costs.shape == (5,)


@pytest.mark.parametrize("capacity", [0.0, -1.0, np.nan])
def test_a_capacity_that_is_none_is_refused(tmp_path, capacity):
    run = toy.make_run(tmp_path)
    with edit_sealed(run.partition) as file:
        file.attrs["capacity"] = capacity
    with pytest.raises(ValueError, match="contradicts itself"):
        read_shares(run.partition, "train", 13)
