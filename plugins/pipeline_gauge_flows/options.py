"""Sections of an experiment with gauge flows."""

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
from pipeline_gauge_flows.data.datasets import ActionOptions, LatticeOptions

Pattern = Literal["direction", "location", "m4"]
Bins = Annotated[int, Field(ge=2)]


class StapleOptions(Section):
    """Staple network, which learns the active loop."""

    n_layers: Depth = 3
    """Number of linear layers; each extends the paths by parallel transports to neighbours."""
    width: Width = 8
    """Channels between the layers: the paper's N_h."""
    gain: NotNegative = 0.5
    """Gain of the random part of the coefficients, Xavier's normal distribution; with 0 the active
    loop is one plaquette at the start."""


class ConvolutionOptions(Section):
    """Convolutions of untraced loops, whose traces are features."""

    n_layers: Depth = 2
    """Layers, each of which reaches one site further; in two dimensions 'direction' leaves no loop
    at the nearest sites."""
    width: Width = 4
    """Loops at each site after a layer."""


class Loops(Section):
    """Active loops of a layer, and features of their neighbourhood."""

    loops: Literal["plaquette", "learned"] = "plaquette"
    """Active loop: one plaquette, of another plane in each sweep, or learned;
    residual layers weight all plaquettes of a link, or with learned loops all paths of its
    network."""
    learned_with: list[Pattern] = ["direction", "m4"]
    """Masks whose active loops are learned; with other masks they are plaquettes."""
    staples: StapleOptions = StapleOptions()
    hidden: list[Width] = [32, 32]
    """Widths of the network from traces of frozen loops to the parameters of the map."""
    convolution: ConvolutionOptions | None = None
    """Further features from loops in the neighbourhood of an active link; null for none."""

    def check_learned(self, pattern: Pattern) -> bool:
        """Return True if active loops are learned with a mask."""
        return self.loops == "learned" and pattern in self.learned_with


class SpectralOptions(Loops):
    """Spectral coupling layers: splines of the eigenvalues of active loops."""

    kind: Literal["spectral"] = "spectral"
    active_loops: Count = 1
    """Active loops of each link, which move it one after the other: as many of its plaquettes,
    or of learned loops."""
    bins: Bins = 8
    """Number of bins of a rational-quadratic spline."""


class ResidualOptions(Loops):
    """Residual layers: steps along the gradient of loops."""

    kind: Literal["residual"] = "residual"
    rectangles: bool = False
    """Include 1x2 rectangles where the mask leaves them a single active link: with 'm4'."""
    largest_step: Annotated[float, Field(gt=0, lt=1)] = 0.9
    """Bound on the sum over loops of the magnitudes of their weights; below 1 each layer is
    bijective."""


def _read_kind(value: Any) -> str:
    """Return the kind of layers in a section; spectral by default."""
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
    """Configurations per epoch; new ones in each."""
    val: Count = 1024
    """Configurations for validation; the same in each epoch."""


class PseudofermionOptions(Section):
    """Layers that map pseudofermions, given the links before and after the flow."""

    n_layers: Annotated[int, Field(ge=2, multiple_of=2)] = 16
    """Linear layers, each of which moves one of two classes of the odd sites; an even number."""


class GaugeOptions(Section):
    """Layers, base distribution and target action of a flow."""

    layers: Layers = SpectralOptions()
    prior: Literal["haar", "ensemble"] = "haar"
    """Base distribution: links drawn from the Haar measure, or the configurations of
    the dataset under its action."""
    draws: Draws = Draws()
    action: ActionOptions | None = None
    """Target action; null for the action of the dataset."""
    pseudofermions: PseudofermionOptions | None = None
    """Second flow, which reduces the noise of estimated ratios of determinants; null for none.
    Requires quarks in both actions."""

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
    """Pattern of active links; see `pipeline_gauge_flows.graph.masks`."""
    sweeps: Depth = 1
    """Updates of each link: in D dimensions 2 D layers with 'direction', 4 D with 'm4', 2^D
    with 'location'."""


class GaugeGraphOptions(Section):
    """Lattice, and masks of the layers."""

    lattice: LatticeOptions | None = None
    """Lattice of the training; null for the lattice of the dataset. Without `n_colours` the group
    is taken from the dataset, too."""
    masks: Annotated[list[MaskBlock], Field(min_length=1)] = [MaskBlock(mask="direction")]
    """Blocks of layers, in order."""
    repeats: Depth = 1
    """Number of repetitions of all blocks."""


class GaugeTrainOptions(TrainOptions):
    """The shared trainer, with a divergence of distributions in place of `loss`."""

    batch_size: Count | Literal["all"] = 64
    """Configurations per optimizer step, over all ranks."""
    objective: Literal["reverse_kl", "forward_kl", "pseudofermions"] = "reverse_kl"
    """reverse_kl: compare the flow's own samples with the action. forward_kl: maximise the
    likelihood of the dataset's configurations. pseudofermions: train `model.pseudofermions` alone,
    with the initial flow of links."""
    shots: Count = 4
    """Pseudofermions per configuration in a step of the objective 'pseudofermions', which always
    uses path gradients."""
    gradient: Literal["ordinary", "path"] = "ordinary"
    """Estimator of the gradient of the reverse divergence. path: without the score of the weights,
    which has mean zero; the estimator is zero for an exact flow (Vaitl et al. 2022)."""
    memory: Literal["graph", "recompute", "invert"] = "recompute"
    """Storage for the backward pass of each layer: everything (graph), active links (recompute) or
    nothing (invert); the rest is recomputed."""

    @model_validator(mode="after")
    def _check_divergence(self) -> Self:
        if self.loss:
            raise ValueError(
                f"loss: {', '.join(self.loss)}: a flow is trained by train.objective; remove "
                "train.loss"
            )
        if self.objective != "pseudofermions" and "shots" in self.model_fields_set:
            raise ValueError(
                "shots: only for the objective 'pseudofermions'; remove train.shots, or change "
                "train.objective"
            )
        if self.objective == "forward_kl" and self.gradient == "path":
            raise ValueError(
                "gradient: 'path' is an estimator for the objective 'reverse_kl'; set "
                "train.gradient to 'ordinary', or change train.objective"
            )
        if self.precision.endswith("mixed"):
            raise ValueError(
                f"precision: {self.precision!r} does not keep links in SU(N); choose '32-true' or "
                "'64-true', log-determinants and actions are float64 with both"
            )
        return self


def check(sections: Mapping[str, BaseModel]) -> None:
    """Check that no option of an experiment is made ineffective by others.

    Raises:
        ValueError: An option has no effect.
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
