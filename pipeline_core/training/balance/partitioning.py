"""Stage `partition`: sample costs, fixed evaluation batches, and a forecast of balance.

The shares of a training step follow from the costs and the number of ranks and are computed at run
time; the file holds for any number of ranks.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pipeline_core.artifacts import store
from pipeline_core.config.sections import PartitionOptions, Strategy
from pipeline_core.fields import SPLITS
from pipeline_core.project.run import Run
from pipeline_core.task import Task
from pipeline_core.training.balance.sampler import Sampler
from pipeline_kernels.packing import Plan, assign_by_lpt, measure_balance, split_by_capacity

Numbers = NDArray[np.int64]
Costs = NDArray[np.float64]

WAYS: Final[dict[str, tuple[Strategy, Literal["count", "cost"]]]] = {
    "random": ("random", "count"),
    "next_fit": ("next_fit", "count"),
    "pairing": ("pairing", "count"),
    "mace_bins": ("mace_bins", "count"),
    "capped": ("capped", "cost"),
    "balanced": ("balanced", "count"),
    "balanced_by_cost": ("balanced", "cost"),
}
"""Compared ways to share an epoch: `partition.strategy` and `train.batch_by`."""

_SHOWN: Final = 8
"""Largest number of ranks for which shares are stored."""
_LISTED: Final = 256
"""Largest number of samples of a step with individually stored costs."""
_STEPS: Final = 16
"""Number of steps with stored shares."""

_BATCH: Final = 16
"""Samples of an evaluation batch without capacity, on average."""


@dataclass(frozen=True)
class Shares:
    """Costs and sharing of the samples of one split.

    Attributes:
        costs: Cost of each sample, (n_samples,).
        bins: Evaluation batch of each sample, (n_samples,).
        capacity: Largest cost that one rank holds in memory at once, infinite for no limit.
        strategy: How an epoch is shared between steps and ranks.
        cost: Whether shares are equal by `costs` or by measured times.
        sizes: Rows of each kind in each sample, kind -> (n_samples,); may be empty.
    """

    costs: Costs
    bins: Numbers
    capacity: float
    strategy: Strategy = "balanced"
    cost: Literal["given", "fitted"] = "given"
    sizes: Mapping[str, Numbers] = field(default_factory=dict)

    def list_batches(self, rank: int = 0, n_ranks: int = 1) -> list[Numbers]:
        """Return the evaluation batches of one rank; those of all ranks hold each sample once."""
        n_bins = int(self.bins.max(initial=-1)) + 1
        loads = np.bincount(self.bins, weights=self.costs, minlength=n_bins)
        ranks = assign_by_lpt(loads, n_ranks)
        batches = Plan.from_bins(self.bins, n_bins, 1)
        return [batches.share(number, 0) for number in np.flatnonzero(ranks == rank).tolist()]


def write_partition(run: Run, task: Task, options: PartitionOptions) -> dict[str, Any]:
    """Write costs, evaluation batches and the forecast of balance of all splits; return a summary.

    The file holds `<split>/cost`, `<split>/bin` and `<split>/sizes/<kind>`, the attributes
    `capacity`, `strategy` and `cost`, and as the attribute `balance` a JSON list: for each number
    of ranks and each of `WAYS` the figures of `Balance`, without "capped" if there is no capacity;
    up to 8 ranks also `loads`, the costs of the shares of the first 16 steps, [step][rank], and, if
    a step has at most 256 samples, `first_step`, the cost of each sample in the first one,
    [rank][sample].

    Raises:
        ValueError: Costs are to be fitted to sizes that the samples do not have.
    """
    capacity = np.inf if options.capacity is None else options.capacity
    splits = {split: _compute_shares(task, split, capacity) for split in SPLITS}
    if options.cost == "fitted" and len(splits["train"].costs) and not splits["train"].sizes:
        raise ValueError(
            f"{run.experiment}: partition.cost: 'fitted' needs sizes to fit times to, but the "
            "samples have none besides their number; set it to 'given'"
        )
    costs = splits["train"].costs
    size = options.samples_per_rank
    forecast = [_forecast(costs, capacity, n, size, run.seed) for n in options.ranks if len(costs)]
    with store.create(run.partition, "partition", run.make_provenance("partition")) as file:
        file.attrs["capacity"] = capacity
        file.attrs["strategy"] = options.strategy
        file.attrs["cost"] = options.cost
        file.attrs["balance"] = json.dumps(forecast)
        for split, shares in splits.items():
            file.create_dataset(f"{split}/cost", data=shares.costs)
            file.create_dataset(f"{split}/bin", data=shares.bins)
            sizes = file.create_group(f"{split}/sizes")
            for kind, rows in shares.sizes.items():
                sizes.create_dataset(kind, data=rows)
    return {
        "samples": {split: len(shares.costs) for split, shares in splits.items()},
        "largest_cost": max(float(s.costs.max(initial=0)) for s in splits.values()),
        "above_capacity": sum(int((s.costs > capacity).sum()) for s in splits.values()),
        "efficiency": {
            f"{entry['ranks']} ranks": {
                way: entry[way]["efficiency"] for way in WAYS if way in entry
            }
            for entry in forecast
        },
    }


def read_shares(path: Path, split: str, n_samples: int) -> Shares:
    """Read costs and sharing of the samples of one split.

    Args:
        path: The artifact of the stage.
        split: Name of the split.
        n_samples: Current number of samples of the split.

    Raises:
        ValueError: The file is missing or damaged, or was made for other samples.
    """
    with store.open_artifact(path, "partition") as file, store.explain_damage(path):
        costs, bins = file[f"{split}/cost"][:], file[f"{split}/bin"][:]
        capacity = float(file.attrs["capacity"])
        # A plugin's own file needs none of these.
        strategy = file.attrs.get("strategy", "balanced")
        cost = file.attrs.get("cost", "given")
        sizes = {kind: rows[:] for kind, rows in file.get(f"{split}/sizes", {}).items()}
    if not _are_sound(costs, bins, sizes, capacity):
        raise ValueError(f"{path}: contradicts itself; run the stage 'partition' again")
    if len(costs) != n_samples:
        raise ValueError(
            f"{path}: holds the costs of {len(costs)} {split} samples, the data have {n_samples}; "
            "run the stage 'partition' again"
        )
    if strategy not in get_args(Strategy):
        raise ValueError(f"{path}: unknown strategy {strategy!r}; run the stage 'partition' again")
    return Shares(costs, bins, capacity, strategy, cost, sizes)


def _are_sound(costs: Costs, bins: Numbers, sizes: Mapping[str, Numbers], capacity: float) -> bool:
    """Return True if all arrays are of the same samples, and bins number batches of them."""
    shapes = {costs.shape, bins.shape, *(rows.shape for rows in sizes.values())}
    types = (*((rows, "iu") for rows in (bins, *sizes.values())), (costs, "f"))
    if len(shapes) != 1 or costs.ndim != 1 or any(x.dtype.kind not in t for x, t in types):
        return False
    numbered = not len(bins) or (bins.min() >= 0 and bins.max() < len(bins))
    return bool(numbered and np.isfinite(costs).all() and (costs >= 0).all() and capacity > 0)


def _compute_shares(task: Task, split: str, capacity: float) -> Shares:
    samples = task.samples(split)
    costs, sizes = np.zeros(0), {}
    if len(samples):
        rows_by_kind = samples.sizes()
        costs = np.asarray(task.cost(rows_by_kind), dtype=np.float64)
        sizes = {k: np.asarray(rows, np.int64) for k, rows in rows_by_kind.items() if k != "sample"}
    assert costs.shape == (len(samples),), (split, costs.shape, len(samples))
    room = capacity if capacity < np.inf or not costs.any() else _BATCH * float(costs.mean())
    return Shares(costs, split_by_capacity(costs, room), capacity, sizes=sizes)


def _forecast(
    costs: Costs, capacity: float, n_ranks: int, samples_per_rank: int, seed: int
) -> dict[str, Any]:
    """Compare ways to share an epoch between ranks."""
    size = samples_per_rank * n_ranks
    entry: dict[str, Any] = {"ranks": n_ranks}
    for way, (strategy, batch_by) in WAYS.items():
        if way == "capped" and capacity == np.inf:
            continue
        sampler = Sampler(
            costs=costs,
            batch_size=size,
            batch_by=batch_by,
            capacity=capacity,
            seed=seed,
            strategy=strategy,
        )
        plan = sampler.plan_epoch(0, n_ranks)
        loads = plan.sum_loads(costs)
        if way in ("random", "next_fit", "pairing", "balanced"):  # their last step may be smaller
            loads = loads[: max(1, len(costs) // size)]
        entry[way] = asdict(measure_balance(loads, plan.deferred))
        if n_ranks <= _SHOWN:
            entry[way]["loads"] = loads[:_STEPS].tolist()
        if n_ranks <= _SHOWN and size <= _LISTED:
            shares = [plan.share(0, rank) for rank in range(n_ranks)]
            entry[way]["first_step"] = [costs[share].tolist() for share in shares]
    return entry
