"""Training configurations: drawn from the Haar measure, or from an ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pipeline_core.batch import Batch
from pipeline_core.fields import SPLITS
from pipeline_core.project.run import Run
from pipeline_core.task import Sizes
from pipeline_gauge_flows.data.ensembles.storage import Ensemble
from pipeline_gauge_flows.data.lattice import Lattice, draw_hot, seed_generator
from pipeline_gauge_flows.model.pseudofermion_shots import draw_noise


def make_batch(links: Tensor, lattice: Lattice) -> Batch:
    """Collate configurations (batch, D, V, N, N) into a batch of `GaugeModule`."""
    extents = torch.tensor([lattice.extents] * len(links), dtype=torch.int64)
    return {"base_links": links, "extents": extents.reshape(len(links), lattice.dimension)}


def _count_rows(n_samples: int) -> Sizes:
    return {"sample": np.ones(n_samples, np.int64)}


@dataclass(frozen=True)
class HaarSamples:
    """Links drawn from the Haar measure, each configuration from its own random numbers.

    Attributes:
        lattice: The lattice.
        n_samples: Configurations per epoch.
        seed: Seed of the run.
        split: Name of the split; splits have different configurations.
        dtype: Complex dtype of links; links of both dtypes agree up to rounding.
        epoch: Number of the epoch, counted from 0; new configurations in each.
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
        """Return the configurations of another epoch."""
        return replace(self, epoch=epoch)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Collate configurations by index."""
        path = self.seed, SPLITS.index(self.split), self.epoch
        generators = (seed_generator(*path, int(i)) for i in indices)
        links = [draw_hot(self.lattice, 1, one, self.dtype) for one in generators]
        return make_batch(torch.cat(links), self.lattice)


class EnsembleSamples:
    """Configurations of the dataset of a run, of one split.

    Args:
        run: The run, from which the data are read.
        lattice: Lattice of the flow.
        split: Name of the split.
        dtype: Complex dtype of links.

    Raises:
        ValueError: They have another lattice.
    """

    def __init__(self, run: Run, lattice: Lattice, split: str, dtype: torch.dtype) -> None:
        self._ensemble = Ensemble(run.data)
        self._ensemble.require(lattice, self._ensemble.action)
        self._numbers = self._ensemble.select(split)
        self._dtype = dtype

    def __len__(self) -> int:
        return len(self._numbers)

    def sizes(self) -> Sizes:
        """Return the rows of each kind."""
        return _count_rows(len(self))

    def batch(self, indices: Sequence[int]) -> Batch:
        """Collate configurations by their indices in the split."""
        links = self._ensemble.read_links(self._numbers[list(indices)].tolist()).to(self._dtype)
        return make_batch(links, self._ensemble.lattice)


@dataclass(frozen=True)
class NoisySamples:
    """Configurations of an ensemble with pseudofermion noise, `noise` of a batch.

    Attributes:
        configurations: Configurations of one split.
        lattice: The lattice.
        shots: Fields chi per configuration.
        seed: Seed of the run.
        split: Name of the split; splits have different noise.
        epoch: Number of the epoch, counted from 0; new noise in each.
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
        """Return the same configurations with the noise of another epoch."""
        return replace(self, epoch=epoch)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Collate configurations by their indices in the split."""
        path = self.seed, SPLITS.index(self.split), self.epoch
        noise = draw_noise(self.lattice, self.shots, [(*path, int(i)) for i in indices])
        return {**self.configurations.batch(indices), "noise": noise}
