"""Options of the studies of figures 3, 5, 6 and 7, in the section `profile`."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from pipeline_core.config.profile import ProfileOptions
from pipeline_core.config.sections import Count, PartitionMethod, Positive, Section

Tiles = tuple[Count, Count, Count]
Counts = Annotated[list[Count], Field(min_length=1)]
Lengths = Annotated[list[Positive], Field(min_length=1)]
Methods = Annotated[list[PartitionMethod], Field(min_length=1)]
Boxes = Annotated[list[Tiles], Field(min_length=1)]


class Packing(Section):
    """Atoms at random, none closer than 1.7 Å, in a periodic box that may be repeated.

    The default has the size and the density of the amorphous HfO2 of the paper. The elements of the
    basis take turns.
    """

    atoms: Count = 3000
    """Atoms of the box."""
    box: tuple[Positive, Positive, Positive] = (53.0, 26.06, 26.06)
    """Edges of the box, Å; with its copies at least twice as wide as the cutoff."""
    tiles: Tiles = (1, 1, 1)
    """Copies of the box along each edge."""


class Throughput(Section):
    """Messages that a node block works on in a second, against their number: figure 3."""

    channels: Counts = [16]
    """The paper's E: channels of embeddings, hidden layers and values."""
    messages: Counts = [256, 1024, 4096, 16384, 65536]
    degree: Count = 500
    """Messages that an atom receives."""
    repeats: Count = 5
    """Measured calls, of which the median counts; one before them does not count."""
    seconds_limit: Positive = 10.0
    """No more messages are tried once a call took so long."""


class Partitions(Section):
    """One large structure shared between many parts: figure 5."""

    packing: Packing = Packing(tiles=(2, 2, 2))
    cutoffs: Lengths = [12.0]
    """Longest edges, Å."""
    parts: Counts = [32, 64, 128]
    methods: Methods = ["low_nn", "grid", "auto", "metis"]
    drawn: Count | None = 128
    """The number of parts whose domains and messages are kept to be drawn, at the first cutoff;
    null for none."""

    @model_validator(mode="after")
    def _check_drawn(self) -> Self:
        if self.drawn is not None and self.drawn not in self.parts:
            raise ValueError(
                f"partitions.drawn: {self.drawn} is none of partitions.parts; name one of "
                f"{', '.join(map(str, self.parts))}, or null"
            )
        return self


class Weak(Section):
    """Structures that grow with the number of ranks, by copies of a box: figure 7."""

    packing: Packing = Packing()
    ranks: Count = 8
    """Ranks that one box is shared between."""
    cutoff: Positive = 12.0
    line: Boxes = [(1, 1, 1), (2, 1, 1), (4, 1, 1)]
    """Copies of the box, in one direction."""
    cube: Boxes = [(1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 2, 2)]
    """Copies of the box, in all directions."""


class GivenLink(Section):
    """What connects ranks, where it is not measured."""

    latency: Positive
    """Seconds of a message."""
    bandwidth: Positive
    """Bytes per second."""


class Scaling(Section):
    """Forward passes on few ranks, measured, and on many, projected: figures 6 and 7.

    Ranks are processes of this machine. On a CPU each has one thread, so that a rank is a core as
    long as there are cores.
    """

    ranks: Counts = [1, 2, 4]
    """Numbers of ranks that are measured, from 1 on."""
    packing: Packing = Packing(atoms=100, box=(7.375, 12.75, 12.75))
    """What each rank has in weak scaling, one copy after the other along the first axis; the
    copies for the most ranks are what all share in strong scaling."""
    cutoff: Positive = 6.0
    """Longest edges of what is measured, Å."""
    repeats: Count = 3
    """Measured passes, of which the median counts; one before them does not count."""
    work_bytes: Annotated[int, Field(ge=2**20)] = 2**28
    """Memory for what is calculated of some edges at a time, as in the section `infer`."""
    link: GivenLink | None = None
    """The link of projections; null to measure exchanges between two processes."""
    weak: Weak | None = Weak()
    """Projected weak scaling; null for none. Strong scaling is that of `partitions`."""


class ESPStudyOptions(ProfileOptions):
    """Training steps, as for any model, and studies of speed and of sharing."""

    throughput: Throughput | None = None
    """A study of a node block; null for none."""
    partitions: Partitions | None = None
    """A study of ways to share a large structure; null for none."""
    scaling: Scaling | None = None
    """A study of strong and weak scaling; null for none."""

    @property
    def has_studies(self) -> bool:
        """Whether a study is asked for."""
        return any((self.throughput, self.partitions, self.scaling))

    @property
    def has_work(self) -> bool:
        """Whether there is something to measure."""
        return super().has_work or self.has_studies
