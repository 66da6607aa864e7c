"""Sections of an experiment with eGNN-ESP."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from pipeline_atoms.config.graph import GraphOptions
from pipeline_core.config.limits import Depth, Width
from pipeline_core.config.sections import (
    Count,
    EvaluateOptions,
    NotNegative,
    Positive,
    Section,
    TrainOptions,
)
from pipeline_egnn_esp.channels import Channels

_UNNATURAL: Final = 4
"""One in this many channels is unnatural: a matrix has fewer unnatural irreps than natural ones."""
HIGHEST_DEGREE: Final = 6
"""Highest degree of embeddings."""


class ESPOptions(Section):
    """Hyperparameters of the network and its target; sizes as in the paper's scaling runs."""

    moved: ClassVar = {"cutoff": "graph.cutoff"}
    formerly: ClassVar = {"parity": False}

    channels: Width = 16
    """Channels of every degree: the paper's E."""
    lmax: Annotated[int, Field(ge=1, le=HIGHEST_DEGREE)] = 4
    """Highest degree of the embeddings: at least twice the highest of the orbitals."""
    layers: Depth = 3
    """Message-passing layers: the paper's M."""
    heads: Count = 2
    """Heads of the attention over the edges of an atom."""
    attention_channels: Width = 16
    """Numbers of an edge that decide its attention, in each head."""
    value_channels: Width = 16
    """Channels of a message that each head sums."""
    hidden_channels: Width = 16
    """Channels between the two convolutions of a node block."""
    feed_forward_channels: Width = 64
    radial_functions: Width = 16
    """Gaussians of the distance, from which a linear map makes an edge's first embedding."""
    parity: bool = True
    """Distinguish parities, so that mirror images of a structure have the same levels; otherwise,
    as in the paper, the network is equivariant under rotations alone.

    A quarter of all channels is of unnatural parity, such as a cross product of vectors has. No
    weights mix the two kinds.
    """
    attention_cutoff: Positive | None = None
    """Distance up to which atoms attend to others, with weights that fall to zero there, Å; None
    for all edges without this factor, as in the paper.

    Blocks of far pairs are predicted in any case. The surroundings of an atom matter far less
    beyond a few Å, and most edges are long: without them a step takes about half the time.
    """
    bond_cutoff: Positive | None = None
    """Distance from the middle of an edge up to which atoms decide its first features, Å, at most
    half of `graph.cutoff`; None for its length alone, as in the paper.

    An element between orbitals of far atoms depends most on the potential between them, which the
    features of the two atoms show only as sharply as `lmax` resolves it from their places.
    """
    bond_functions: Count = 8
    """Gaussians of the distance from the middle of an edge; of no effect without `bond_cutoff`."""
    target: Literal["hamiltonian", "overlap"] = "hamiltonian"
    """The matrix that is learned.

    The overlap is exact and free of the noise of integration grids: learning it tests the model,
    not the data.
    """
    zero: Literal["structure", "data"] = "structure"
    """Zero of the energies of the Hamiltonian.

    structure: the zero of each structure is moved so that H is orthogonal to S, with labels H - µS
    and µ = Σ H S / Σ S² over all elements. The zero of a periodic calculation is arbitrary, and
    all levels shift by µ. data: the zero of the data.
    """
    two_centre: bool = True
    """Learn the residual of blocks of pairs beyond two-centre integrals (Slater-Koster tables of
    the distance), which are fitted to the training structures; otherwise the whole blocks. For
    atoms the residual beyond the mean of the element is always learned."""

    def split(self, total: int) -> Channels:
        """Split a number of channels into natural and, with parity, unnatural ones."""
        unnatural = max(1, total // _UNNATURAL) if self.parity else 0
        return Channels(total - unnatural, unnatural)

    @model_validator(mode="after")
    def _check_parity(self) -> Self:
        names = ("channels", "hidden_channels", "value_channels", "feed_forward_channels")
        few = [name for name in names if self.parity and getattr(self, name) < 2]
        if few:
            raise ValueError(
                f"parity: {few[0]} is 1, but one channel of each parity is needed; give at least 2"
            )
        return self


class ESPGraphOptions(GraphOptions):
    """Neighbour graph that reaches as far as orbitals overlap."""

    cutoff: Positive = 12.0
    """Largest distance of a pair of atoms, Å. The paper's r_cut is half of it."""


class BlockLoss(Section):
    """Weights of the terms of the loss, means over the elements of the blocks of atoms or pairs.

    Errors are in eV, or 1 for overlaps. The unit of relative errors is the typical size of the same
    elements for atoms, and of all elements at the same distance for pairs.
    """

    on_site: NotNegative = 1.0
    """Weight of the terms of blocks of atoms."""
    off_site: NotNegative = 1.0
    """Weight of the terms of blocks of pairs."""
    mse: NotNegative = 1.0
    """Weight of squared errors."""
    mae: NotNegative = 1.0
    """Weight of absolute errors."""
    relative: NotNegative = 0.0
    """Weight of absolute relative errors."""

    @model_validator(mode="after")
    def _require_a_weight(self) -> Self:
        if not (self.on_site + self.off_site) * (self.mse + self.mae + self.relative):
            raise ValueError("all weights are zero; give one of mse, mae and relative a weight")
        return self


class ESPTrainOptions(TrainOptions):
    """The shared trainer, with the loss of matrices in place of `loss`."""

    batch_size: Count | Literal["all"] = 1
    """Structures of one optimizer step over all ranks, for any number of ranks."""
    blocks: BlockLoss = BlockLoss()

    @model_validator(mode="after")
    def _refuse_other_weights(self) -> Self:
        if self.loss:
            raise ValueError(
                f"loss: {', '.join(self.loss)}: the loss of matrices is described by train.blocks; "
                "remove train.loss"
            )
        return self


class ESPEvaluateOptions(EvaluateOptions):
    """Comparison of predicted matrices and their levels with the data."""

    shell_width: Positive = 1.0
    """Width of the shells of distance in which errors are reported, Å."""
    k_points: tuple[Count, Count, Count] = (3, 3, 3)
    """Monkhorst-Pack grid on which levels are compared."""
    dense_orbitals: Count = 3000
    """Largest number of orbitals for which levels are compared: time grows with its cube."""
    electrons: dict[str, Count] = {}
    """Electrons of an atom in the calculation by element, such as {Hf: 12, O: 6}, two a level, from
    which the occupied levels follow. Empty to compare all levels only."""

    @field_validator("electrons")
    @classmethod
    def _check_elements(cls, electrons: dict[str, int]) -> dict[str, int]:
        from ase.data import chemical_symbols  # too heavy for the list of models

        for symbol in electrons:
            if symbol not in chemical_symbols[1:]:
                raise ValueError(f"{symbol!r} is not an element; write its symbol, such as Hf")
        return electrons


def check(sections: Mapping[str, BaseModel]) -> None:
    """Check that the neighbours of an edge's ends include all atoms around its middle.

    Raises:
        ValueError: They do not.
    """
    model, graph = sections["model"], sections["graph"]
    assert isinstance(model, ESPOptions)
    assert isinstance(graph, GraphOptions)
    require_bonds_within(model, graph.cutoff)


def require_bonds_within(model: ESPOptions, cutoff: float) -> None:
    """Check that atoms around the middle of an edge are neighbours of its ends.

    Raises:
        ValueError: `model.bond_cutoff` is more than half of the cutoff, Å.
    """
    if model.bond_cutoff is not None and model.bond_cutoff > cutoff / 2:
        raise ValueError(
            f"model.bond_cutoff: {model.bond_cutoff:g} Å, but atoms around the middle of an edge "
            f"are found among the neighbours of an end: use at most half of graph.cutoff, "
            f"{cutoff / 2:g} Å"
        )
