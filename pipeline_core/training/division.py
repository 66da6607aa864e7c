"""Division of training among ranks: data parallel, or domain decomposition of large structures."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np

from pipeline_core.config.sections import PartitionOptions, TrainOptions
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.project.run import Run
from pipeline_core.system.memory import NoRoomError
from pipeline_core.task import DrawnSamples, Samples, Task
from pipeline_core.training.balance.cost_model import CostModel
from pipeline_core.training.balance.partitioning import Shares, read_shares
from pipeline_core.training.balance.sampler import Costs, Numbers, Sampler, Share
from pipeline_core.training.micro_batches import MicroBatch, make_divider
from pipeline_kernels.packing import Plan, assign_by_lpt, split_by_capacity

logger = logging.getLogger(__name__)

Load = Callable[[Numbers], MicroBatch]
"""Collates a micro-batch, given the numbers of its samples; called on another thread."""


class Division(Protocol):
    """Division of the work of an epoch among ranks.

    Attributes:
        shares: Costs and sizes of the training samples.
        val_costs: Costs of the validation samples, (n_val,).
        are_passes_local: Whether forward and backward passes are free of communication.
    """

    shares: Shares
    val_costs: Costs
    are_passes_local: bool

    def describe_sharing(self) -> dict[str, str]:
        """Return the facts that the samples of steps depend on, besides the training options."""
        ...

    def plan_epoch(self, epoch: int) -> Plan:
        """Return the steps of an epoch; all ranks compute the same."""
        ...

    def share(self, step: Plan) -> Share:
        """Return the share of this rank in a step; `step` is the plan of that step alone."""
        ...

    def load_training(self, epoch: int) -> Load:
        """Return the function that collates training samples of an epoch."""
        ...

    def plan_validation(self) -> tuple[list[Numbers], Load]:
        """Return the evaluation batches of this rank, and the function that collates them."""
        ...

    def balance_by(self, model: CostModel | None) -> None:
        """Share by the times that a cost model predicts; by the given costs if None."""
        ...


def make_division(run: Run, task: Task, options: TrainOptions, ranks: Ranks) -> Division:
    """Return the division of a training by `partition.parts`; all ranks call it.

    Raises:
        ValueError: There is nothing to train on, files do not fit together, or the work cannot be
            divided so.
    """
    section = run.sections["partition"]
    parts = section.parts if isinstance(section, PartitionOptions) else "samples"
    if parts == "graph":
        return ByDomains(run, task, options, ranks)
    by_samples = BySamples(run, task, options, ranks)
    return by_samples if parts == "samples" else _choose_division(by_samples, run, task, options)


def _choose_division(
    by_samples: BySamples, run: Run, task: Task, options: TrainOptions
) -> Division:
    """Divide by domains where needed and possible, and log the choice."""
    ranks, reason = by_samples.ranks, by_samples.find_large()
    if reason is None:
        logger.info("partition.parts: samples, since none costs twice a rank's share of a step")
        return by_samples
    try:
        by_domains = ByDomains(run, task, options, ranks)
    except NoRoomError:
        raise  # on this rank alone: others divide
    except ValueError as error:
        logger.info("partition.parts: samples, although %s: %s", reason, error)
        return by_samples
    logger.info("partition.parts: graph, since %s", reason)
    return by_domains


class BySamples:
    """Data parallel: each rank takes whole samples, of equal cost in each step; see `Sampler`.

    Args:
        run: The run.
        task: Its samples.
        options: Options of the training.
        ranks: Ranks that train.

    Attributes:
        ranks: Ranks that train.

    Raises:
        ValueError: There is nothing to train on, or files do not fit together.
    """

    are_passes_local = True

    def __init__(self, run: Run, task: Task, options: TrainOptions, ranks: Ranks) -> None:
        self._samples, self.ranks = {s: task.samples(s) for s in ("train", "val")}, ranks
        n_train, n_val = map(len, self._samples.values())
        if not n_train:
            raise ValueError(f"{run.experiment}: the split 'train' of its dataset is empty")
        self.shares = read_shares(run.partition, "train", n_train)
        self._val_shares = read_shares(run.partition, "val", n_val)
        self.val_costs = self._val_shares.costs
        self._sampler = make_sampler(self.shares, options, run.seed)

    def describe_sharing(self) -> dict[str, str]:
        """As `Division.describe_sharing`."""
        return self._sampler.describe_sharing(self.ranks.size)

    def plan_epoch(self, epoch: int) -> Plan:
        """As `Division.plan_epoch`."""
        return self._sampler.plan_epoch(epoch, self.ranks.size)

    def share(self, step: Plan) -> Share:
        """As `Division.share`."""
        return self._sampler.share(step, self.ranks.rank)

    def load_training(self, epoch: int) -> Load:
        """As `Division.load_training`."""
        stored = self._samples["train"]
        samples = stored.of_epoch(epoch) if isinstance(stored, DrawnSamples) else stored
        return lambda numbers: MicroBatch(samples.batch(numbers.tolist()))

    def plan_validation(self) -> tuple[list[Numbers], Load]:
        """As `Division.plan_validation`."""
        samples, ranks = self._samples["val"], self.ranks
        batches = self._val_shares.list_batches(ranks.rank, ranks.size)
        return batches, lambda numbers: MicroBatch(samples.batch(numbers.tolist()))

    def balance_by(self, model: CostModel | None) -> None:
        """As `Division.balance_by`."""
        times = None if model is None else model.predict_seconds(self.shares.sizes)
        self._sampler = replace(self._sampler, times=times)

    def find_large(self) -> str | None:
        """Return the reason to divide structures between the ranks; None without one."""
        return find_large(self._sampler, self.ranks.size)


class ByDomains:
    """Domain decomposition of large structures; small structures are taken whole.

    Small structures cost no more than one rank's domain of the costliest one (`find_whole_limit`):
    divided they would have more ghost atoms than own atoms, and whole they take no more memory than
    such a domain. In each step ranks first compute their domains, one structure after the other, so
    that they exchange the same messages in the same order, and then the small structures, balanced
    by cost as well as possible: a step should hold several of them for each rank.

    A domain has the labels of its own rows, and on rank 0 those of the sample: the sums and counts
    of the loss and the gradients, all-reduced over ranks, are those of whole structures. Steps do
    not depend on the number of ranks.

    Args:
        run: The run.
        task: Its samples and model.
        options: Options of the training.
        ranks: Ranks that train; all of them construct it together.

    Raises:
        ValueError: There is nothing to train on, files do not fit together, times of single ranks
            are requested, which depend on each other here, or structures cannot be divided.
    """

    are_passes_local = False

    def __init__(self, run: Run, task: Task, options: TrainOptions, ranks: Ranks) -> None:
        self._samples = {split: task.samples(split) for split in ("train", "val")}
        require_divided_training(run, options, self._samples["train"])
        self._ranks = ranks
        self.shares = read_shares(run.partition, "train", len(self._samples["train"]))
        self.val_costs = read_shares(run.partition, "val", len(self._samples["val"])).costs
        self._sampler = make_sampler(self.shares, options, run.seed)
        self._costs = {"train": self.shares.costs, "val": self.val_costs}
        self._limit = find_whole_limit(self.shares.costs, self.shares.capacity, ranks.size)
        divided = make_divider(run, task, ranks)
        self._parts = {
            split: divided.divide(split, own, np.flatnonzero(self._costs[split] > self._limit))
            for split, own in self._samples.items()
        }

    def describe_sharing(self) -> dict[str, str]:
        """As `Division.describe_sharing`."""
        return self._sampler.describe_sharing(1)

    def plan_epoch(self, epoch: int) -> Plan:
        """As `Division.plan_epoch`."""
        return self._sampler.plan_epoch(epoch, 1)

    def share(self, step: Plan) -> Share:
        """As `Division.share`."""
        return self._share("train", step.share(0, 0))

    def load_training(self, epoch: int) -> Load:
        """As `Division.load_training`."""
        return partial(self._load, "train")

    def plan_validation(self) -> tuple[list[Numbers], Load]:
        """As `Division.plan_validation`."""
        share = self._share("val", np.arange(len(self.val_costs)))
        return share.micro_batches, partial(self._load, "val")

    def balance_by(self, model: CostModel | None) -> None:
        """As `Division.balance_by`, for the given costs alone."""
        assert model is None

    def _share(self, split: str, numbers: Numbers) -> Share:
        """Return the share of this rank in some samples: domains first, then whole samples."""
        costs, n_ranks = self._costs[split], self._ranks.size
        divided, whole, owners = share_whole(costs, numbers, self._limit, n_ranks)
        mine = whole[owners == self._ranks.rank]
        bins = split_by_capacity(costs[mine], self._limit)
        batches = [mine[bins == number] for number in range(bins.max(initial=-1) + 1)]
        loads = np.bincount(owners, costs[whole], n_ranks) + costs[divided].sum() / n_ranks
        return Share([*divided[:, None], *batches], loads)

    def _load(self, split: str, numbers: Numbers) -> MicroBatch:
        if self._costs[split][numbers[0]] > self._limit:
            return self._parts[split](int(numbers[0]))
        return MicroBatch(self._samples[split].batch(numbers.tolist()))


def find_large(sampler: Sampler, n_ranks: int) -> str | None:
    """Return the reason to divide structures of a training between ranks.

    Args:
        sampler: Gives their costs and the steps.
        n_ranks: Number of ranks.

    Returns:
        A sentence if a structure costs more than a rank may hold, or than twice its equal share of
        a full step, so that others would wait half of the time; None otherwise, or for one rank.
    """
    largest, plan = float(sampler.costs.max()), sampler.plan_epoch(0, n_ranks)
    n_together = max(len(plan.step(number).items) for number in range(len(plan)))
    share = float(sampler.costs.mean()) * n_together / n_ranks
    if n_ranks == 1 or largest <= min(2 * share, sampler.capacity):
        return None
    if largest > sampler.capacity:
        return f"a structure costs {largest:g}, more than partition.capacity, {sampler.capacity:g}"
    return f"a structure costs {largest:g}, more than twice a rank's share of a step, {share:g}"


def find_whole_limit(costs: Costs, capacity: float, n_ranks: int) -> float:
    """Return the largest cost of a structure that one rank takes whole.

    It is the cost of one rank's domain of the costliest structure, or the capacity if less.

    Args:
        costs: Costs of the training samples, (n_samples,).
        capacity: Largest cost that one rank holds in memory at once.
        n_ranks: Number of ranks.
    """
    return min(float(costs.max()) / n_ranks or np.inf, capacity)


def share_whole(
    costs: Costs, numbers: Numbers, limit: float, n_ranks: int
) -> tuple[Numbers, Numbers, Numbers]:
    """Split samples into those that ranks divide and those taken whole, with their ranks.

    Args:
        costs: Costs of all samples, (n_samples,).
        numbers: Numbers of the samples to split, (n,).
        limit: From `find_whole_limit`.
        n_ranks: Number of ranks.

    Returns:
        Numbers of divided samples, (n_divided,), of whole ones, (n_whole,), and their ranks,
        (n_whole,).
    """
    is_divided = costs[numbers] > limit
    whole = numbers[~is_divided]
    return numbers[is_divided], whole, assign_by_lpt(costs[whole], n_ranks)


def require_divided_training(run: Run, options: TrainOptions, train: Samples) -> None:
    """Check that ranks can divide the structures of a training (`partition.parts: graph`).

    Args:
        run: The run.
        options: Options of the training.
        train: The samples of the split "train".

    Raises:
        ValueError: There is nothing to train on, samples are drawn, or times of single ranks are
            requested, which depend on each other here.
    """
    if options.profile or run.get_section("partition", PartitionOptions).cost == "fitted":
        raise ValueError(
            f"{run.experiment}: partition.parts: graph makes ranks wait for each other within "
            "a step, so their times are meaningless: set train.profile to false and "
            "partition.cost to given"
        )
    if not len(train):
        raise ValueError(f"{run.experiment}: the split 'train' of its dataset is empty")
    if isinstance(train, DrawnSamples):
        raise ValueError(
            f"{run.experiment}: partition.parts: graph: samples that are drawn anew in each "
            "epoch cannot be divided; set partition.parts to samples"
        )


def make_sampler(shares: Shares, options: TrainOptions, seed: int) -> Sampler:
    """Return the sampler of a training."""
    return Sampler(
        costs=shares.costs,
        batch_size=options.batch_size,
        batch_by=options.batch_by,
        capacity=shares.capacity,
        seed=seed,
        strategy=shares.strategy,
    )
