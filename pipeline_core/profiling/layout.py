"""Layout of the ranks of a training on machines, cores or GPUs."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

import torch

from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.threads import count_threads_per_rank
from pipeline_core.profiling.network import choose_network, measure_network
from pipeline_core.profiling.projection import Epoch
from pipeline_core.project.run import Run

_MOST_BESIDE: Final = 2
"""Ranks that are measured at once, per rank that the cores can run at once."""


@dataclass(frozen=True)
class Layout:
    """Layout of the ranks of a training.

    Attributes:
        ranks: Their number.
        nodes: Number of machines, all like this one.
        units: Cores, or GPUs, of a machine.
        on_gpus: Whether they are GPUs.
    """

    ranks: int
    nodes: int
    units: int
    on_gpus: bool = False

    @property
    def ranks_per_node(self) -> int:
        """Ranks of the fullest machine."""
        return -(-self.ranks // self.nodes)

    @property
    def units_per_rank(self) -> int:
        """Cores, or GPUs, of a rank, possibly in turn with others."""
        return count_threads_per_rank(self.units, self.ranks_per_node)

    @property
    def at_once(self) -> int:
        """Ranks of a machine that compute at the same time."""
        return max(1, self.units // self.units_per_rank)

    @property
    def beside(self) -> int:
        """Ranks of a machine that are measured at once: enough to show how they share it.

        Ranks with a GPU each share nothing.
        """
        return 1 if self.on_gpus else min(self.ranks_per_node, _MOST_BESIDE * self.at_once)

    @property
    def adding(self) -> int:
        """Ranks of a machine between which the network is measured."""
        return min(self.ranks_per_node, self.units) if self.on_gpus else self.beside

    @property
    def network(self) -> str:
        """Name of the network between the ranks, as in a plan."""
        return "between nodes" if self.nodes > 1 else f"here, {self.adding} ranks"

    @property
    def contention(self) -> str:
        """Condition of a cost model, as named in a plan."""
        return f"{self.units_per_rank} a rank, {self.beside} at once"

    @property
    def used_units(self) -> int:
        """Cores, or GPUs, that all ranks use."""
        return min(self.ranks * self.units_per_rank, self.nodes * self.units)


def find_networks(
    run: Run, device: torch.device, layouts: Iterable[Layout]
) -> dict[str, dict[str, Any]]:
    """Return the records of the links within this machine and between machines, by name."""
    networks: dict[str, dict[str, Any]] = {}
    for layout in layouts:
        if layout.ranks > 1 and layout.network not in networks:
            is_here = layout.nodes == 1
            record = measure_network(device, layout.adding) if is_here else choose_network(run)
            networks[layout.network] = record
    return networks


def describe_epoch(
    layout: Layout, epoch: Epoch, memory: int | None, train: TrainOptions
) -> dict[str, Any]:
    """Return the record of a number of ranks in a plan, but for its speedup.

    Args:
        layout: Layout of the ranks.
        epoch: Their projected epoch.
        memory: Bytes of the fullest rank; None if the system does not report them.
        train: Options of the training.
    """
    busy = epoch.compute + epoch.idle
    balance, free = epoch.compute / busy, busy / epoch.seconds
    return {
        "ranks": layout.ranks,
        "nodes": layout.nodes,
        "units": layout.used_units,
        "steps": epoch.steps,
        "step_s": epoch.seconds / epoch.steps,
        "epoch_s": epoch.seconds,
        "balance": balance,
        "communication": free,
        "efficiency": balance * free,
        "memory": memory,
        "unit_hours": layout.used_units * train.limit_seconds(epoch.seconds) / 3600,
        "parts": asdict(epoch),
    }
