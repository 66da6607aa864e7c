"""The sections of an experiment with gauge flows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Discriminator, Field, Tag, model_validator

from pipeline_core.config.limits import Depth, Width
from pipeline_core.config.sections import (
    Count,
    NotNegative,
    Section,
    TrainOptions,
)
from pipeline_gauge_flows.datasets import ActionOptions, LatticeOptions

Pattern = Literal["direction", "location", "m4"]
Bins = Annotated[int, Field(ge=2)]


class StapleOptions(Section):
    """A network that learns from which loops the active loop is made."""

    n_layers: Depth = 3
    """Linear layers; each lets the paths grow by parallel transports to neighbours."""
    width: Width = 8
    """Channels between the layers: the paper's N_h."""
    gain: NotNegative = 0.5
    """Of the random part of the coefficients, Xavier's normal distribution; without it the active
    loop is one plaquette at the start."""


class ConvolutionOptions(Section):
    """A network that carries untraced loops from site to site before it takes their traces."""

    n_layers: Depth = 2
    """Layers, each of which sees one site further; in two dimensions 'direction' leaves no loop at
    the nearest sites."""
    width: Width = 4
    """Loops at each site after a layer."""


class Loops(Section):
    """Active loops of a layer, and what it knows of their surroundings."""

    loops: Literal["plaquette", "learned"] = "plaquette"
    """Whether the active loop is one plaquette, of another plane in each sweep, or is learned;
    residual layers weigh all plaquettes of a link, or with learned ones all paths of its
    network."""
    learned_with: list[Pattern] = ["direction", "m4"]
    """Masks with which active loops are learned; with the others they are plaquettes."""
    staples: StapleOptions = StapleOptions()
    hidden: list[Width] = [32, 32]
    """Widths of the network from traces of frozen loops to the parameters of the map."""
    convolution: ConvolutionOptions | None = None
    """What is added to the loops beside an active link: those of its neighbourhood; null for
    none."""

    def check_learned(self, pattern: Pattern) -> bool:
        """Return whether active loops are learned with a mask."""
        return self.loops == "learned" and pattern in self.learned_with


class SpectralOptions(Loops):
    """Spectral coupling layers: splines of the eigenvalues of active loops."""

    kind: Literal["spectral"] = "spectral"
    active_loops: Count = 1
    """Active loops of each link, by which it moves one after the other: as many of its plaquettes,
    or of learned loops."""
    bins: Bins = 8
    """Bins of a rational-quadratic spline."""


class ResidualOptions(Loops):
    """Residual layers: steps along the gradient of loops."""

    kind: Literal["residual"] = "residual"
    rectangles: bool = False
    """Whether 1x2 rectangles join in where the mask leaves them one active link: that is 'm4'."""
    largest_step: Annotated[float, Field(gt=0, lt=1)] = 0.9
    """Bound of the sum over loops of the magnitudes of their weights; below 1 each layer is one to
    one."""


def _read_kind(value: Any) -> str:
    """Return the kind of layers that a section describes: spectral unless it says otherwise."""
    if isinstance(value, dict):
        return str(value.get("kind", "spectral"))
    return str(getattr(value, "kind", "spectral"))


Layers = Annotated[
    Annotated[SpectralOptions, Tag("spectral")] | Annotated[ResidualOptions, Tag("residual")],
    Discriminator(_read_kind),
]


class Draws(Section):
    """Configurations that are drawn from the Haar measure."""

    train: Count = 1024
    """What counts as an epoch; new ones in each."""
    val: Count = 1024
    """For validation; the same in each epoch."""


class PseudofermionOptions(Section):
    """Layers that map pseudofermions, given the links before and after the flow."""

    n_layers: Annotated[int, Field(ge=2, multiple_of=2)] = 16
    """Linear layers, each of which moves one of two classes of the odd sites; an even number."""


class GaugeOptions(Section):
    """A flow, where it starts and where it leads."""

    layers: Layers = SpectralOptions()
    prior: Literal["haar", "ensemble"] = "haar"
    """Where the flow starts: from links drawn from the Haar measure, or from the configurations of
    the dataset under its action."""
    draws: Draws = Draws()
    action: ActionOptions | None = None
    """The action of the distribution that the flow leads to; null for that of the dataset."""
    pseudofermions: PseudofermionOptions | None = None
    """A second flow, by which ratios of determinants are estimated with less noise; null for none.
    For quarks in both actions."""

    @model_validator(mode="after")
    def _check_draws(self) -> Self:
        if self.prior == "ensemble" and "draws" in self.model_fields_set:
            raise ValueError(
                "draws: with the prior 'ensemble' the configurations of the dataset are an epoch; "
                "remove model.draws, or choose the prior 'haar'"
            )
        return self

    @model_validator(mode="after")
    def _check_pseudofermions(self) -> Self:
        if self.pseudofermions is not None and self.prior != "ensemble":
            raise ValueError(
                "pseudofermions: they lead from quarks to quarks, and there are none under the "
                "prior 'haar'; remove the key, or choose the prior 'ensemble'"
            )
        return self


class MaskBlock(Section):
    """Layers with one mask."""

    mask: Pattern
    """Which links a layer moves; see `pipeline_gauge_flows.masks`."""
    sweeps: Depth = 1
    """How often each link moves: in D dimensions 2 D layers with 'direction', 4 D with 'm4', 2^D
    with 'location'."""


class GaugeGraphOptions(Section):
    """The lattice, and which links move in which layer."""

    lattice: LatticeOptions | None = None
    """Where the flow is trained; null for the lattice of the dataset. Without `n_colours` the group
    is that of the dataset, too."""
    masks: Annotated[list[MaskBlock], Field(min_length=1)] = [MaskBlock(mask="direction")]
    """Blocks of layers, in order."""
    repeats: Depth = 1
    """How often all blocks follow each other."""


class GaugeTrainOptions(TrainOptions):
    """The shared trainer, with a divergence of distributions in place of `loss`."""

    batch_size: Count | Literal["all"] = 64
    """Configurations of one optimizer step over all ranks, however many there are."""
    objective: Literal["reverse_kl", "forward_kl", "pseudofermions"] = "reverse_kl"
    """Whether the flow's own samples are compared with the action, or the dataset's configurations
    are to be likely under the flow; or whether that of `model.pseudofermions` is trained, and the
    flow of links stays as it was started from."""
    shots: Count = 4
    """Pseudofermions of each configuration in a step of the objective 'pseudofermions', whose
    gradients are path gradients always."""
    gradient: Literal["ordinary", "path"] = "ordinary"
    """Estimator of the gradient of the reverse divergence. path: without the score of the weights,
    which vanishes on average, and altogether where the flow is exact (Vaitl et al. 2022)."""
    memory: Literal["graph", "recompute", "invert"] = "recompute"
    """What a step keeps of the layers for its backward pass: all, the links that move, or
    nothing; the rest is computed again."""

    @model_validator(mode="after")
    def _check_divergence(self) -> Self:
        if self.loss:
            raise ValueError(
                f"loss: {', '.join(self.loss)}: a flow is trained by train.objective; remove "
                "train.loss"
            )
        if self.objective != "pseudofermions" and "shots" in self.model_fields_set:
            raise ValueError(
                "shots: of the objective 'pseudofermions'; remove train.shots, or change "
                "train.objective"
            )
        if self.objective == "forward_kl" and self.gradient == "path":
            raise ValueError(
                "gradient: 'path' is an estimator for the objective 'reverse_kl'; set "
                "train.gradient to 'ordinary', or change train.objective"
            )
        if self.precision.endswith("mixed"):
            raise ValueError(
                f"precision: {self.precision!r} leaves links in no group; choose '32-true' or "
                "'64-true', log-determinants and actions are float64 with both"
            )
        return self


def check(sections: Mapping[str, BaseModel]) -> None:
    """Check that no option of an experiment is without effect beside others.

    Raises:
        ValueError: One is.
    """
    model, graph, train = (sections[name] for name in ("model", "graph", "train"))
    assert isinstance(model, GaugeOptions)
    assert isinstance(graph, GaugeGraphOptions)
    assert isinstance(train, GaugeTrainOptions)
    layers, patterns = model.layers, {block.mask for block in graph.masks}
    if layers.loops == "learned" and not any(map(layers.check_learned, patterns)):
        raise ValueError(
            f"model.layers.loops: 'learned' with the masks {', '.join(layers.learned_with)} "
            f"(learned_with), but graph.masks has {', '.join(sorted(patterns))} only; add a mask "
            "with which loops are learned, or choose 'plaquette'"
        )
    if train.objective == "pseudofermions" and model.pseudofermions is None:
        raise ValueError(
            "train.objective: 'pseudofermions' trains model.pseudofermions, which is not set; set "
            "it, or choose 'reverse_kl'"
        )
    if train.objective == "forward_kl" and "draws" in model.model_fields_set:
        raise ValueError(
            "model.draws: with train.objective 'forward_kl' the configurations of the dataset are "
            "an epoch; remove model.draws, or choose 'reverse_kl'"
        )
