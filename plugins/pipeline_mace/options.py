"""Options of MACE."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, Field, model_validator

from pipeline_atoms.config.graph import GraphOptions
from pipeline_atoms.config.inference import InferOptions
from pipeline_core.config.limits import Depth, Width
from pipeline_core.config.sections import Positive, Section, require_different

Degree = Annotated[int, Field(ge=0, le=3)]
Interaction = Literal["residual", "plain"]
Gate = Literal["silu", "tanh", "none"]


class MACEOptions(Section):
    """Hyperparameters of the network, with defaults of the balanced training, arXiv:2504.10700."""

    moved: ClassVar = {"cutoff": "graph.cutoff"}

    channels: Width = 128
    """Channels of every representation."""
    max_l: Annotated[int, Field(ge=0, le=2)] = 1
    """Highest degree of the features that pass from one layer to the next."""
    lmax: Degree = 3
    """Highest degree of the spherical harmonics, and of the features that are multiplied."""
    correlation: Annotated[int, Field(ge=1, le=3)] = 2
    """Neighbours in one product (correlation order); the body order of a layer is one more."""
    independent_couplings: bool = False
    """Give each product weights for independent couplings only.

    Otherwise it has one for each coupling, as in mace-torch without `use_reduced_cg`: more weights
    for the same products.
    """
    layers: Depth = 2
    first_interaction: Interaction = "residual"
    """Block of the first layer: residual, which adds a linear map of its input features, or not."""
    interaction: Interaction = "residual"
    """The same for the other layers."""
    normalization: Literal["average", "density"] = "average"
    """Divisor of sums over neighbours: their average number in the training data, or one plus a
    learned density of the neighbours of each atom."""
    distance_transform: Literal["none", "agnesi"] = "none"
    """Argument of radial functions: the distance, or its Agnesi transform, whose scale is the mean
    of both covalent radii (doi:10.1063/5.0158783, on radial transformations)."""
    pair_repulsion: bool = False
    """Repel atoms that are nearer than the sum of their covalent radii, by the potential of
    Ziegler, Biersack and Littmark (ZBL). It is scaled like the other energies."""
    radial_functions: Width = 8
    radial_features: list[Width] = Field(default=[64, 64, 64], min_length=1)
    """Widths of the hidden layers between radial basis and weights of the tensor product."""
    envelope_power: Annotated[int, Field(ge=1)] = 5
    """Power p of the polynomial envelope that takes the radial basis to zero at the cutoff."""
    readout_features: Width = 16
    """Width of the hidden layer of the last readout; of each head, where a network has several."""
    gate: Gate = "silu"
    """Activation of that layer."""
    kernels: Literal["fused", "reference"] = "fused"
    """Implementation of tensor products and contractions.

    fused: tensor products are summed as they are made; only the radial weights, pairs of atoms
    times paths times channels, are stored. reference: one PyTorch operation after the other, as the
    formulas read; the baseline of an ablation.
    """
    heads: list[str] = Field(default=["default"], min_length=1)
    """Names of the energy heads, one for each kind of data, such as levels of theory.

    Each has its own readouts, scale, shift and energies of free atoms; the network predicts the
    first for structures that name no head.
    """
    scale_shift: bool = True
    """Scale interaction energies by the root mean square of the training forces, and shift them by
    the mean energy of an atom beyond its reference energy."""

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        require_different(self.heads)
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
    """Check that `infer.head` names a head.

    Raises:
        ValueError: The model is used, and `infer.head` is not one of its heads.
    """
    model, infer = sections["model"], sections["infer"]
    assert isinstance(model, MACEOptions)
    assert isinstance(infer, InferOptions)
    infer.require_head(model.heads)
