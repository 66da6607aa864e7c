"""Training in which all ranks work on every structure, each on its atoms and their edges.

The trainer is the engine's. What differs is what a rank takes of a step: of each structure of the
step its part, one structure after the other, so that ranks exchange the same messages in the same
order. A part holds the labels of own atoms and edges alone; sums and counts of the loss, and
gradients of the parameters, which the trainer adds over ranks, are then those of the structures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import torch
from torch import nn

from pipeline_core.balance.partitioning import Shares
from pipeline_core.balance.sampler import Numbers, Sampler, Share
from pipeline_core.batch import Batch
from pipeline_core.config.sections import GraphOptions, TrainOptions
from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.distributed.threads import limit_numpy_threads
from pipeline_core.run import Run
from pipeline_core.seeds import determinism, seed_everything
from pipeline_core.task import Samples, Sizes, Task, build_task
from pipeline_core.training.start import start_metadata
from pipeline_core.training.trainer import Trainer
from pipeline_egnn_esp.distributed import Halo, link_of, split_batch
from pipeline_egnn_esp.options import ESPOptions
from pipeline_egnn_esp.partition_options import ESPPartitionOptions, Method
from pipeline_kernels.halo import SelfTransport, ThroughCpu, TorchTransport, Transport
from pipeline_kernels.packing import Plan
from pipeline_kernels.partition import Link, partition

_PLACE: Final = "graph_place"
"""Field of a batch that says which plans belong to it."""


def train_graphs(run: Run) -> dict[str, Any]:
    """Train as `pipeline_core.training.trainer.train_run`, all ranks on every structure."""
    options = run.section("train", TrainOptions)
    with connect_ranks(run.device, run.state) as ranks, determinism(options.deterministic):
        task = build_task(run, start_metadata(options, run.model_info))
        seed_everything(run.seed, 1 + ranks.rank)
        trainer = GraphTrainer(run, task, options, ranks)
        with limit_numpy_threads():
            return trainer.fit()


class GraphTrainer(Trainer):
    """One training, as one of its ranks sees it; arguments and errors are those of `Trainer`.

    Raises:
        ValueError: Times of single ranks are asked for, which depend on each other here, or a
            structure has fewer atoms than there are ranks.
    """

    def __init__(self, run: Run, task: Task, options: TrainOptions, ranks: Ranks) -> None:
        section = run.section("partition", ESPPartitionOptions)
        if options.profile or section.cost == "fitted":
            raise ValueError(
                f"{run.experiment}: partition.parts: graph makes ranks wait for each other within "
                "a step, so their times say nothing: set train.profile to false and "
                "partition.cost to given"
            )
        halos = Halos(task.module, ranks)  # before the average of weights copies the module
        super().__init__(run, task, options, ranks)
        for split, samples in {"train": self._train, "val": self._val}.items():
            _require_atoms(samples, f"{run.experiment}: split {split}", ranks.size)
        cutoff = run.section("graph", GraphOptions).cutoff
        size = next(task.module.parameters()).element_size()
        link = link_of(section.link, run.section("model", ESPOptions), size)
        self._train, self._val = (
            Parts(samples, place, halos, cutoff, section.method, link)
            for place, samples in enumerate((self._train, self._val))
        )
        self._sampler = WholeSteps(**vars(self._sampler))
        self._val_shares = WholeShares(**vars(self._val_shares))


def _require_atoms(samples: Samples, place: str, n_ranks: int) -> None:
    """Refuse structures with fewer atoms than there are ranks."""
    fewest = int(samples.sizes()["atom"].min()) if len(samples) else n_ranks
    if fewest < n_ranks:
        raise ValueError(
            f"{place}: a structure has {fewest} atoms, which cannot be shared between {n_ranks} "
            f"ranks; start at most {fewest}, or set partition.parts to samples"
        )


class Halos:
    """Gives the module the plans of each batch that is a part.

    Args:
        module: Takes a batch and a halo.
        ranks: Who exchanges.

    Attributes:
        labels: The rank of each atom, by split and number of the structure.
    """

    def __init__(self, module: nn.Module, ranks: Ranks) -> None:
        self.ranks = ranks
        self._transport: Transport = SelfTransport()
        if ranks.size > 1:
            through_cpu = ranks.device.type == "cuda" and ranks.through_cpu
            device = torch.device("cpu") if through_cpu else ranks.device
            direct = TorchTransport(device=device)
            self._transport = ThroughCpu(direct) if through_cpu else direct
        self._halos: dict[tuple[int, int], Halo] = {}
        self.labels: dict[tuple[int, int], Numbers] = {}
        module.register_forward_pre_hook(self._given, with_kwargs=True)

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        return self  # a copy of the module works on the same parts

    def part(self, batch: Batch, labels: Numbers, place: tuple[int, int]) -> Batch:
        """Return this rank's part of a structure; its plans are kept under `place`."""
        ranks = self.ranks
        cut = split_batch(batch, torch.from_numpy(labels), ranks.rank, ranks.size)
        part, nodes, twins = cut
        self._halos[place] = Halo(nodes, twins, self._transport).to(ranks.device)
        return part | {_PLACE: torch.tensor(place)}

    def _given(
        self, _: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        batch, *others = arguments
        if _PLACE not in batch:
            return arguments, named
        split, number = batch[_PLACE].tolist()
        return (batch, *others), named | {"halo": self._halos[split, number]}


@dataclass(frozen=True)
class Parts:
    """This rank's part of each sample of a split."""

    whole: Samples
    place: int
    halos: Halos
    cutoff: float
    method: Method
    link: Link

    def __len__(self) -> int:
        return len(self.whole)

    def sizes(self) -> Sizes:
        """Return the rows of each kind that each whole sample has."""
        return self.whole.sizes()

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return the part of one sample; without communication, as all ranks cut alike."""
        (number,) = indices
        batch = self.whole.batch([number])
        place = self.place, int(number)
        if place not in self.halos.labels:
            where = batch["positions"], batch["cell"][0], batch["pbc"][0], batch["edge_index"]
            how = self.halos.ranks.size, self.cutoff, self.method, self.link
            self.halos.labels[place] = partition(*where, *how)
        return self.halos.part(batch, self.halos.labels[place], place)


@dataclass(frozen=True, kw_only=True)
class WholeSteps(Sampler):
    """Steps of which each rank takes all samples, one after the other."""

    def plan(self, epoch: int, n_ranks: int) -> Plan:
        """Return the steps of an epoch, which do not depend on the number of ranks."""
        return super().plan(epoch, 1)

    def share(self, step: Plan, rank: int) -> Share:
        """Return all samples of a step."""
        share = super().share(step, 0)
        numbers = [one for batch in share.micro_batches for one in np.split(batch, len(batch))]
        return Share(numbers, share.loads)


class WholeShares(Shares):
    """Evaluation batches of which each rank takes all, one sample each."""

    def batches(self, rank: int = 0, n_ranks: int = 1) -> list[Numbers]:
        """Return the numbers of all samples."""
        return list(np.arange(len(self.costs))[:, None])
