"""The section `profile` of an experiment: measurements of steps, and epochs on many ranks."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from pipeline_core.config.limits import Ranks
from pipeline_core.config.sections import Count, Positive, Section, Strategy


class Network(Section):
    """How long ranks take to add up their gradients: 2 (p − 1) (alpha + n / (p bandwidth)).

    That of a ring of p ranks and n bytes (R. Thakur et al., doi:10.1177/1094342005051521).
    """

    alpha: Positive
    """Latency of one message, s."""
    bandwidth: Positive
    """Of one rank, bytes/s."""


class SizeClass(Section):
    """Samples of a set that cannot be had, by their sizes."""

    name: str
    samples: Count
    atoms: tuple[Count, Count]
    """Least and largest number of atoms; all between are equally frequent."""
    edges_per_atom: Positive | None = None
    """None draws sizes from the training samples, whose edges are known; `atoms` is unused then."""

    @model_validator(mode="after")
    def _check_atoms(self) -> Self:
        if self.atoms[0] > self.atoms[1]:
            raise ValueError(f"atoms: {list(self.atoms)} must be [least, largest]; swap them")
        return self


class Projection(Section):
    """Epochs on more ranks than there are, from measured compute and a model of communication."""

    sizes: list[SizeClass] = []
    """The samples of an epoch; those of the training split if empty."""
    samples: Count | None = None
    """Samples of an epoch, drawn from `sizes` or the training split; null for one of each."""
    atoms_per_rank: Positive = 3072.0
    """Atoms of a step on each rank, on average."""
    batch_size: Count | None = None
    """Samples of a step over all ranks in `strong`, which take ever less of it; null for as many as
    give each rank `atoms_per_rank`."""
    strategies: list[Strategy] = ["random", "balanced"]
    strong: list[Ranks] = [16, 32, 64, 128, 256, 512, 740]
    """Numbers of ranks that share the same epoch."""
    weak: list[tuple[Ranks, Count]] = []
    """Pairs of ranks and samples."""
    network: Network | None = None
    """null to measure it between two processes of this machine."""


class ProfileOptions(Section):
    """Measurements of the training step, from which the size of batches is chosen.

    `pipeline-core profile` makes them; the workflow does where `samples` are given.
    """

    samples: list[Count] = []
    """Numbers of samples of a batch, such as [1, 2, 4, 8, 16, 32]; none to measure nothing."""
    classes: Annotated[int, Field(ge=1, le=5)] = 3
    """Sizes of samples that are measured: the quantiles of their numbers of atoms, from the
    smallest to the largest."""
    repeats: Count = 3
    """Measured steps of each batch, of which the median counts."""
    memory_limit: Positive | None = None
    """Bytes that a step may use; null for what the machine has free."""
    seconds_limit: Positive = 20.0
    """Batches larger than one that took so long are not tried."""
    projection: Projection | None = None

    @property
    def has_work(self) -> bool:
        """Whether there is something to measure."""
        return bool(self.samples)
