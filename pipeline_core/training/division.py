"""How the ranks of a training divide its work: by samples, or by domains of each structure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from pipeline_core.balance.cost_model import CostModel
from pipeline_core.balance.partitioning import Shares, read_shares
from pipeline_core.balance.sampler import Costs, Numbers, Sampler, Share
from pipeline_core.config.sections import PartitionOptions, TrainOptions
from pipeline_core.distributed.division import DividedSplits
from pipeline_core.distributed.pieces import Piece
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.run import Run
from pipeline_core.task import DrawnSamples, Samples, Task
from pipeline_kernels.packing import Plan

Load = Callable[[Numbers], Piece]
"""Makes what passes through the model at once, from numbers of samples; on another thread."""


class Division(Protocol):
    """What each rank does of an epoch.

    Attributes:
        shares: Costs and sizes of the training samples.
        val_costs: Costs of the validation samples, (n_val,).
        are_passes_local: Whether a rank goes forward and backward without the others.
    """

    shares: Shares
    val_costs: Costs
    are_passes_local: bool

    def describe_sharing(self) -> dict[str, str]:
        """Return what the samples of steps depend on beside the options of the training."""
        ...

    def plan_epoch(self, epoch: int) -> Plan:
        """Return the steps of an epoch; all ranks compute the same."""
        ...

    def share(self, step: Plan) -> Share:
        """Return what this rank does of a step; `step` is the plan of that step alone."""
        ...

    def load_training(self, epoch: int) -> Load:
        """Return what makes the training samples of an epoch into pieces."""
        ...

    def plan_validation(self) -> tuple[list[Numbers], Load]:
        """Return the evaluation batches of this rank, and what makes them into pieces."""
        ...

    def balance_by(self, model: CostModel | None) -> None:
        """Share by the times that a model gives, or by the given costs."""
        ...


def make_division(run: Run, task: Task, options: TrainOptions, ranks: Ranks) -> Division:
    """Return how `partition.parts` divides the work of a training; all ranks call it.

    Raises:
        ValueError: There is nothing to train on, files do not fit together, or the work cannot be
            divided so.
    """
    section = run.sections["partition"]
    if isinstance(section, PartitionOptions) and section.parts == "graph":
        return ByDomains(run, task, options, ranks)
    return BySamples(run, task, options, ranks)


class BySamples:
    """Each rank takes whole samples, of equal cost in each step; see `Sampler`.

    Args:
        run: The run.
        task: Its samples.
        options: The training.
        ranks: Who trains.

    Raises:
        ValueError: There is nothing to train on, or files do not fit together.
    """

    are_passes_local = True

    def __init__(self, run: Run, task: Task, options: TrainOptions, ranks: Ranks) -> None:
        self._samples, self._ranks = {s: task.samples(s) for s in ("train", "val")}, ranks
        n_train, n_val = map(len, self._samples.values())
        if not n_train:
            raise ValueError(f"{run.experiment}: the split 'train' of its dataset is empty")
        self.shares = read_shares(run.partition, "train", n_train)
        self._val_shares = read_shares(run.partition, "val", n_val)
        self.val_costs = self._val_shares.costs
        self._sampler = make_sampler(self.shares, options, run.seed)

    def describe_sharing(self) -> dict[str, str]:
        """As `Division.describe_sharing`."""
        return self._sampler.describe_sharing(self._ranks.size)

    def plan_epoch(self, epoch: int) -> Plan:
        """As `Division.plan_epoch`."""
        return self._sampler.plan_epoch(epoch, self._ranks.size)

    def share(self, step: Plan) -> Share:
        """As `Division.share`."""
        return self._sampler.share(step, self._ranks.rank)

    def load_training(self, epoch: int) -> Load:
        """As `Division.load_training`."""
        stored = self._samples["train"]
        samples = stored.of_epoch(epoch) if isinstance(stored, DrawnSamples) else stored
        return lambda numbers: Piece(samples.batch(numbers.tolist()))

    def plan_validation(self) -> tuple[list[Numbers], Load]:
        """As `Division.plan_validation`."""
        samples, ranks = self._samples["val"], self._ranks
        batches = self._val_shares.list_batches(ranks.rank, ranks.size)
        return batches, lambda numbers: Piece(samples.batch(numbers.tolist()))

    def balance_by(self, model: CostModel | None) -> None:
        """As `Division.balance_by`."""
        times = None if model is None else model.predict_seconds(self.shares.sizes)
        self._sampler = replace(self._sampler, times=times)


class ByDomains:
    """Each rank takes its part of every structure, one structure after the other.

    So ranks exchange the same messages in the same order. A part holds labels of own rows alone:
    sums and counts of the loss and gradients of the parameters, which are added over ranks, are
    those of the structures. Steps do not depend on the number of ranks.

    Args:
        run: The run.
        task: Its samples and model.
        options: The training.
        ranks: Who trains; all of them make this together.

    Raises:
        ValueError: There is nothing to train on, files do not fit together, times of single ranks
            are asked for, which depend on each other here, or structures cannot be divided.
    """

    are_passes_local = False

    def __init__(self, run: Run, task: Task, options: TrainOptions, ranks: Ranks) -> None:
        train, val = task.samples("train"), task.samples("val")
        require_divided_training(run, options, train)
        self.shares = read_shares(run.partition, "train", len(train))
        self.val_costs = read_shares(run.partition, "val", len(val)).costs
        self._sampler = make_sampler(self.shares, options, run.seed)
        divided = DividedSplits(run, task, ranks)
        self._train, self._val = divided.divide("train", train), divided.divide("val", val)

    def describe_sharing(self) -> dict[str, str]:
        """As `Division.describe_sharing`."""
        return self._sampler.describe_sharing(1)

    def plan_epoch(self, epoch: int) -> Plan:
        """As `Division.plan_epoch`."""
        return self._sampler.plan_epoch(epoch, 1)

    def share(self, step: Plan) -> Share:
        """As `Division.share`."""
        share = self._sampler.share(step, 0)
        numbers = [one for batch in share.micro_batches for one in np.split(batch, len(batch))]
        return Share(numbers, share.loads)

    def load_training(self, epoch: int) -> Load:
        """As `Division.load_training`."""
        return lambda numbers: self._train(int(numbers[0]))

    def plan_validation(self) -> tuple[list[Numbers], Load]:
        """As `Division.plan_validation`."""
        return [*np.arange(len(self.val_costs))[:, None]], lambda n: self._val(int(n[0]))

    def balance_by(self, model: CostModel | None) -> None:
        """As `Division.balance_by`, for the given costs alone."""
        assert model is None


def require_divided_training(run: Run, options: TrainOptions, train: Samples) -> None:
    """Check that a training with `partition.parts: graph` is one that ranks can divide.

    Args:
        run: The run.
        options: The training.
        train: The samples of the split "train".

    Raises:
        ValueError: There is nothing to train on, samples are drawn, or times of single ranks are
            asked for, which depend on each other here.
    """
    if options.profile or run.get_section("partition", PartitionOptions).cost == "fitted":
        raise ValueError(
            f"{run.experiment}: partition.parts: graph makes ranks wait for each other within "
            "a step, so their times say nothing: set train.profile to false and "
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
