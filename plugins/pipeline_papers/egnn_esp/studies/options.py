"""Options of the studies of figures 3, 5, 6 and 7, in the section `profile`."""

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
    """Random atoms, none closer than 1.7 Å, in a periodic box that may be repeated.

    The default has the size and the density of the amorphous HfO2 of the paper. The elements of the
    basis alternate.
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
    """Measured calls, whose median is reported, after one call for warm-up."""
    seconds_limit: Positive = 10.0
    """Duration of a call after which no larger numbers of messages are measured."""


class Partitions(Section):
    """Domain decomposition of one large structure into many parts: figure 5."""

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
                f"partitions.drawn: {self.drawn} is not in partitions.parts; name one of "
                f"{', '.join(map(str, self.parts))}, or null"
            )
        return self


class Weak(Section):
    """Structures that grow with the number of ranks, by copies of a box: figure 7."""

    packing: Packing = Packing()
    ranks: Count = 8
    """Ranks that share one box."""
    cutoff: Positive = 12.0
    line: Boxes = [(1, 1, 1), (2, 1, 1), (4, 1, 1)]
    """Copies of the box, in one direction."""
    cube: Boxes = [(1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 2, 2)]
    """Copies of the box, in all directions."""


class Scaling(Section):
    """Forward passes on few ranks, measured, and on many, projected: figures 6 and 7.

    Ranks are processes of this machine. On a CPU each has one thread, so that a rank is a core as
    long as there are cores.
    """

    ranks: Counts = [1, 2, 4]
    """Numbers of ranks that are measured, from 1 on."""
    packing: Packing = Packing(atoms=100, box=(7.375, 12.75, 12.75))
    """Box of each rank in weak scaling, with copies along the first axis; the copies for the most
    ranks are the structure of strong scaling."""
    cutoff: Positive = 6.0
    """Longest edges of measured structures, Å."""
    repeats: Count = 3
    """Measured passes, whose median is reported, after one pass for warm-up."""
    work_bytes: Annotated[int, Field(ge=2**20)] = 2**28
    """Memory for the edges of one chunk, as in the section `infer`."""
    weak: Weak | None = Weak()
    """Projected weak scaling; null for none. Strong scaling uses the structure of `partitions`."""


class ESPStudyOptions(ProfileOptions):
    """Training steps, as for any model, and studies of speed and of partitioning."""

    throughput: Throughput | None = None
    """A study of a node block; null for none."""
    partitions: Partitions | None = None
    """A study of domain decompositions of a large structure; null for none."""
    scaling: Scaling | None = None
    """A study of strong and weak scaling; null for none."""

    @property
    def has_studies(self) -> bool:
        """True if a study is selected."""
        return any((self.throughput, self.partitions, self.scaling))

    @property
    def has_work(self) -> bool:
        """True if there is something to measure."""
        return super().has_work or self.has_studies
