"""Configurations to train on: drawn from the Haar measure, or those of an ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from pipeline_core.batch import Batch
from pipeline_core.fields import SPLITS
from pipeline_core.run import Run
from pipeline_core.task import Sizes
from pipeline_gauge_flows.datasets import ActionOptions
from pipeline_gauge_flows.ensembles.storage import Ensemble
from pipeline_gauge_flows.fermions.shots import draw_noise
from pipeline_gauge_flows.lattice import Lattice, draw_hot

Role = Literal["base", "target"]
"""What configurations are to a flow: where it starts, or where it leads."""


def make_batch(links: Tensor, lattice: Lattice, role: Role = "base") -> Batch:
    """Return configurations (batch, D, V, N, N) as a batch of `GaugeModule`."""
    extents = torch.tensor([lattice.extents] * len(links), dtype=torch.int64)
    return {f"{role}_links": links, "extents": extents.reshape(len(links), lattice.dimension)}


def _count_rows(n_samples: int) -> Sizes:
    return {"sample": np.ones(n_samples, np.int64)}


@dataclass(frozen=True)
class HaarSamples:
    """Links drawn from the Haar measure, each configuration from its numbers alone.

    Attributes:
        lattice: Their lattice.
        n_samples: Configurations of an epoch.
        seed: Of the run.
        split: Name of the split; splits have different configurations.
        dtype: Complex type of links; links of both types agree up to rounding.
        epoch: Number of the epoch, from 0; new configurations in each.
    """

    lattice: Lattice
    n_samples: int
    seed: int
    split: str
    dtype: torch.dtype
    epoch: int = 0

    def __len__(self) -> int:
        return self.n_samples

    def sizes(self) -> Sizes:
        """Return the rows of each kind."""
        return _count_rows(len(self))

    def of_epoch(self, epoch: int) -> HaarSamples:
        """Return as many configurations for an epoch."""
        return replace(self, epoch=epoch)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return configurations by their numbers."""
        links = [draw_hot(self.lattice, 1, self._make_generator(i), self.dtype) for i in indices]
        return make_batch(torch.cat(links), self.lattice)

    def _make_generator(self, number: int) -> torch.Generator:
        path = [self.seed, SPLITS.index(self.split), self.epoch, number]
        (state,) = np.random.SeedSequence(path).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(state))


class EnsembleSamples:
    """Configurations of the dataset of a run, of one split.

    Args:
        run: The run whose data are read.
        lattice: Where the flow acts.
        action: The action that they have to be of; None for any.
        split: Name of the split.
        role: What they are to the flow.
        dtype: Complex type of links.

    Raises:
        ValueError: They are of another lattice or action.
    """

    def __init__(
        self,
        run: Run,
        lattice: Lattice,
        action: ActionOptions | None,
        split: str,
        role: Role,
        dtype: torch.dtype,
    ) -> None:
        self._ensemble = Ensemble(run.data)
        self._ensemble.require(lattice, self._ensemble.action if action is None else action)
        self._numbers = self._ensemble.select(split)
        self._role: Role = role
        self._dtype = dtype

    def __len__(self) -> int:
        return len(self._numbers)

    def sizes(self) -> Sizes:
        """Return the rows of each kind."""
        return _count_rows(len(self))

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return configurations by their numbers in the split."""
        links = self._ensemble.read_links(self._numbers[list(indices)].tolist()).to(self._dtype)
        return make_batch(links, self._ensemble.lattice, self._role)


@dataclass(frozen=True)
class NoisySamples:
    """Configurations of an ensemble with noise of pseudofermions, `noise` of a batch.

    Attributes:
        configurations: Of one split.
        lattice: Theirs.
        shots: Fields chi of each configuration.
        seed: Of the run.
        split: Name of the split; splits have different noise.
        epoch: Number of the epoch, from 0; new noise in each.
    """

    configurations: EnsembleSamples
    lattice: Lattice
    shots: int
    seed: int
    split: str
    epoch: int = 0

    def __len__(self) -> int:
        return len(self.configurations)

    def sizes(self) -> Sizes:
        """Return the rows of each kind."""
        return self.configurations.sizes()

    def of_epoch(self, epoch: int) -> NoisySamples:
        """Return the same configurations with other noise."""
        return replace(self, epoch=epoch)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return configurations by their numbers in the split."""
        path = self.seed, SPLITS.index(self.split), self.epoch
        noise = draw_noise(self.lattice, self.shots, [(*path, int(i)) for i in indices])
        return {**self.configurations.batch(indices), "noise": noise}
