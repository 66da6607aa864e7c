"""The section `profile` of an experiment: step measurements, projected epochs on many ranks."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from pipeline_core.config.limits import Ranks
from pipeline_core.config.sections import Count, Link, Positive, Section, Strategy


class SizeClass(Section):
    """Sizes of samples in a dataset that is not available."""

    name: str
    samples: Count
    atoms: tuple[Count, Count]
    """Smallest and largest number of atoms; all numbers between are equally frequent."""
    edges_per_atom: Positive | None = None
    """None draws sizes, with their edges, from the training samples; `atoms` is unused then."""

    @model_validator(mode="after")
    def _check_atoms(self) -> Self:
        if self.atoms[0] > self.atoms[1]:
            raise ValueError(f"atoms: {list(self.atoms)} must be [least, largest]; swap them")
        return self


class Projection(Section):
    """Epochs on more ranks than available, from measured compute and a communication model."""

    sizes: list[SizeClass] = []
    """The samples of an epoch; the training split if empty."""
    samples: Count | None = None
    """Samples of an epoch, drawn from `sizes` or the training split; null for one of each."""
    atoms_per_rank: Positive = 3072.0
    """Mean number of atoms per rank and step."""
    batch_size: Count | None = None
    """Samples of a step over all ranks in `strong`, the same for any number of ranks; null for the
    number that gives each rank `atoms_per_rank`."""
    strategies: list[Strategy] = ["random", "balanced"]
    strong: list[Ranks] = [16, 32, 64, 128, 256, 512, 740]
    """Numbers of ranks that share the same epoch (strong scaling)."""
    weak: list[tuple[Ranks, Count]] = []
    """Pairs of ranks and samples (weak scaling)."""
    network: Link | None = None
    """Link between ranks, which add gradients by a ring all-reduce; null to measure it between two
    processes of this machine."""


class ProfileOptions(Section):
    """Measurements of the training step, to choose the batch size from.

    `pipeline-core profile` makes them; the workflow only where `samples` are given.
    """

    samples: list[Count] = []
    """Numbers of samples of a batch, such as [1, 2, 4, 8, 16, 32]; none to measure nothing."""
    classes: Annotated[int, Field(ge=1, le=5)] = 3
    """Sizes of the measured samples: the quantiles of their numbers of atoms, from the smallest to
    the largest."""
    repeats: Count = 3
    """Measured steps of each batch; their median is taken."""
    memory_limit: Positive | None = None
    """Memory that a step may use, bytes; null for the free memory of the machine."""
    seconds_limit: Positive = 20.0
    """Time of a batch, s, beyond which larger batches are not tried."""
    projection: Projection | None = None

    @property
    def has_work(self) -> bool:
        """True if there is something to measure."""
        return bool(self.samples)
