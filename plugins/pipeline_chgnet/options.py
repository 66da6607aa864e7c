"""Options of CHGNet, with the defaults of the published version 0.3.0."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.config.inference import InferOptions
from pipeline_core.config.limits import Depth, Width
from pipeline_core.config.sections import (
    Count,
    Positive,
    Section,
    TrainOptions,
    require_different,
)

N_ELEMENTS: Final = 94
"""Hydrogen to plutonium."""


def _check_odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError(f"must be odd (a constant and pairs of sine and cosine), got {value}")
    return value


class CHGNetOptions(Section):
    """Hyperparameters of the network."""

    moved: ClassVar = {name: f"graph.{name}" for name in ("cutoff", "angle_cutoff")}

    atom_features: Width = 64
    """Features of an atom."""
    bond_features: Width = 64
    """Features of a bond."""
    angle_features: Width = 64
    """Features of an angle between two bonds."""
    hidden_features: Width = 64
    """Width of the hidden layer in the gated perceptrons of atom and bond convolutions."""
    convolutions: Depth = 4
    """Atom convolutions; bond convolutions are one less, angle updates two less."""
    readout_features: list[Width] = Field(default=[64, 64, 64], min_length=1)
    """Widths of the hidden layers that turn the features of an atom into its energy."""
    radial_functions: Width = 31
    """Size of the radial basis, sines over the distance with an envelope."""
    angular_functions: Annotated[Width, AfterValidator(_check_odd)] = 31
    """Size of the angular basis: one constant, then as many sines as cosines."""
    envelope_power: Count = 8
    """Power p of the polynomial envelope that takes the radial basis to zero at the cutoff."""
    kernels: Literal["fused", "reference"] = "fused"
    """Implementation of messages. fused: in one pass, after the first maps of perceptrons have run
    over atoms, bonds and angles. reference: one PyTorch operation after the other, over
    concatenated features of each message; the baseline of an ablation."""
    basis: Literal["batched", "serial"] = "batched"
    """Expansion of bonds and angles in basis functions. batched: all at once. serial: one
    structure after the other, as in the published code; the baseline of an ablation."""
    updates: Literal["sequential", "parallel"] = "sequential"
    """sequential: each update of a block reads the results of those before it, as in the published
    network. parallel: all read the features before the block (FastCHGNet, equation (11)), and bond
    convolution and angle update, which then have the same inputs, share their matrix products."""
    heads: Literal["none", "paper", "pair"] = "none"
    """Source of forces and stress. none: derivatives of the energy; they conserve it, which
    simulations and phonons need. The direct heads predict them without differentiation, so that a
    training step takes a fraction of the time, at the price of forces that are not the gradient of
    an energy. pair: from the features of a bond and its two atoms, with stress as the virial of
    the forces. paper: heads of FastCHGNet, equations (7) and (9), for comparison: their forces
    depend on the elements of bonds below `angle_cutoff` only, and their stress on the choice of
    the lattice vectors."""
    energy_heads: list[str] = []
    """Names of the energies of a network with several, such as levels of theory: each has its own
    readout and energies of free atoms, all else is shared. The names are those of the parts of a
    mixture. Forces are then derivatives: direct `heads` of forces exist for one level only."""

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        require_different(self.energy_heads)
        if self.energy_heads and self.heads != "none":
            raise ValueError(
                f"energy_heads: heads: {self.heads} gives forces of one level of theory; leave out "
                "one of the two"
            )
        return self


class CHGNetGraphOptions(GraphOptions):
    """Neighbour graph and bond graph, with the cutoffs of version 0.3.0."""

    angle_cutoff: Positive = 3.0
    """Longest bond that takes part in angles, Å."""


def check(sections: Mapping[str, BaseModel]) -> None:
    """Check that gradients are exact enough, and that `infer.head` names a head.

    Raises:
        ValueError: The precision is mixed although forces are derivatives, or the model is used,
            and `infer.head` is not one of its heads.
    """
    model, train, infer = (sections[name] for name in ("model", "train", "infer"))
    assert isinstance(infer, InferOptions)
    assert isinstance(model, CHGNetOptions)
    assert isinstance(train, TrainOptions)
    if model.heads == "none" and not train.precision.endswith("-true"):
        raise ValueError(
            f"train.precision is {train.precision!r}, but CHGNet differentiates its forces a "
            "second time and needs the full mantissa; set it to '32-true' or '64-true', or give "
            "the model heads (model.heads)"
        )
    infer.require_head(model.energy_heads)
