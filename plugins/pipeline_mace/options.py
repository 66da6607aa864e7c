"""The options of MACE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, Field, model_validator

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.config.inference import InferOptions
from pipeline_core.config.limits import Depth, Width
from pipeline_core.config.sections import Positive, Section

Degree = Annotated[int, Field(ge=0, le=3)]
Interaction = Literal["residual", "plain"]
Gate = Literal["silu", "tanh", "none"]


class MACEOptions(Section):
    """Sizes of the network; the defaults are those of the balanced training of arXiv:2504.10700."""

    moved: ClassVar = {"cutoff": "graph.cutoff"}

    channels: Width = 128
    """Channels of every representation."""
    max_l: Annotated[int, Field(ge=0, le=2)] = 1
    """Highest degree of the features that pass from one layer to the next."""
    lmax: Degree = 3
    """Highest degree of the spherical harmonics, and of the features that are multiplied."""
    correlation: Annotated[int, Field(ge=1, le=3)] = 2
    """Neighbours that one product combines; the body order of a layer is one more."""
    independent_couplings: bool = False
    """Whether each product has a weight for each independent coupling alone.

    Else for each coupling, as in mace-torch without `use_reduced_cg`: more weights for the same
    products.
    """
    layers: Depth = 2
    first_interaction: Interaction = "residual"
    """Whether the first layer adds a linear map of the features that it starts from."""
    interaction: Interaction = "residual"
    """The same of the other layers."""
    normalization: Literal["average", "density"] = "average"
    """What sums over neighbours are divided by: their average number in the training data, or one
    and a density of the neighbours of each atom, which is learned."""
    distance_transform: Literal["none", "agnesi"] = "none"
    """Whether radial functions are those of the distance, or of its Agnesi transform, whose scale
    is the mean of both covalent radii (doi:10.1063/5.0158783, on radial transformations)."""
    pair_repulsion: bool = False
    """Whether the potential of Ziegler, Biersack and Littmark keeps atoms apart that are nearer
    than the sum of their covalent radii. It is scaled as the other energies are."""
    radial_functions: Width = 8
    radial_features: list[Width] = Field(default=[64, 64, 64], min_length=1)
    """Widths of the hidden layers between radial basis and weights of the tensor product."""
    envelope_power: Annotated[int, Field(ge=1)] = 5
    """Power p of the polynomial envelope that takes the radial basis to zero at the cutoff."""
    readout_features: Width = 16
    """Width of the hidden layer of the last readout; of each head, where a network has several."""
    gate: Gate = "silu"
    """Function behind that layer."""
    kernels: Literal["fused", "reference"] = "fused"
    """How tensor products and contractions are computed.

    fused: tensor products are summed as they are made; the radial weights alone, pairs of atoms
    times paths times channels, are stored. reference: one PyTorch operation after the other, as the
    formulas read; the baseline of an ablation.
    """
    heads: list[str] = Field(default=["default"], min_length=1)
    """Names of the kinds of data that the network gives an energy for, such as levels of theory.

    Each has readouts, scale, shift and energies of free atoms of its own; the first is what the
    network predicts where a structure says nothing else.
    """
    scale_shift: bool = True
    """Whether interaction energies are scaled by the root mean square of the training forces, and
    shifted by the mean energy of an atom beyond its reference energy."""

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if len(set(self.heads)) < len(self.heads):
            raise ValueError("heads: a name is given twice; leave one out")
        return self

    @model_validator(mode="after")
    def _check_degrees(self) -> Self:
        if self.max_l > self.lmax and self.layers > 1:
            raise ValueError(
                f"max_l: features of degree {self.max_l} do not exist with lmax {self.lmax}; lower "
                "max_l, or raise lmax"
            )
        return self


class MACEGraphOptions(GraphOptions):
    """Neighbour graph with the cutoff of arXiv:2504.10700."""

    cutoff: Positive = 4.5


def check(sections: Mapping[str, BaseModel]) -> None:
    """Check that a head is named for use.

    Raises:
        ValueError: The model is used, and `infer.head` is not one of its heads.
    """
    model, infer = sections["model"], sections["infer"]
    assert isinstance(model, MACEOptions)
    assert isinstance(infer, InferOptions)
    infer.require_head(model.heads)
