"""Sections of an experiment with gauge flows."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, Discriminator, Field, Tag, model_validator

from pipeline_core.config.limits import Depth, Width
from pipeline_core.config.sections import (
    Count,
    NotNegative,
    Section,
    TrainOptions,
)
from pipeline_gauge_flows.data.datasets import ActionOptions, LatticeOptions

REMOVED: Final[dict[str, Any]] = {
    "model.layers.active_loops": 1,
    "model.layers.convolution": None,
    # Of residual layers.
    "model.layers.largest_step": 0.9,
    "model.layers.loops": "plaquette",
    "model.layers.learned_with": ["direction", "m4"],
    "model.layers.staples": {"n_layers": 3, "width": 8, "gain": 0.5},
    "train.shots": 4,
    "evaluate.splits": None,
    "evaluate.observables.smooth": None,
    "evaluate.cost.thermalisation": 30,
    "evaluate.cost.overrelaxation": 1,
    "evaluate.cost.hmc_steps": 10,
    "evaluate.cost.hmc_chains": 8,
    "infer.samples.method": "metropolis",
    "infer.samples.separation": 1,
    "infer.samples.extents": None,
    "infer.derivatives.splits": ["val", "test"],
    "infer.derivatives.observables": {
        "wilson_loops": [[2, 2]], "polyakov": True, "smooth": None,
    },
    "infer.derivatives.fractions": [1.0, 0.5, 0.25, 0.125, 0.0625],
    "infer.derivatives.independent": True,
    "infer.derivatives.pion.source": "z4",
    "infer.derivatives.pion.t_min": None,
}  # fmt: skip
"""Options of earlier versions that are gone, see `ModelInfo.removed`."""

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


class SpectralOptions(Section):
    """Spectral coupling layers: splines of the eigenvalues of active loops."""

    kind: Literal["spectral"] = "spectral"
    loops: Literal["plaquette", "learned"] = "plaquette"
    """Active loop: one plaquette, of another plane in each sweep, or learned."""
    learned_with: list[Pattern] = ["direction", "m4"]
    """Masks whose active loops are learned; with other masks they are plaquettes."""
    staples: StapleOptions = StapleOptions()
    hidden: list[Width] = [32, 32]
    """Widths of the network from traces of frozen loops to the parameters of the map."""
    bins: Bins = 8
    """Number of bins of a rational-quadratic spline."""

    def check_learned(self, pattern: Pattern) -> bool:
        """Return True if active loops are learned with a mask."""
        return self.loops == "learned" and pattern in self.learned_with


class ResidualOptions(Section):
    """Residual layers: steps along the gradient of all plaquettes of a link."""

    kind: Literal["residual"] = "residual"
    hidden: list[Width] = [32, 32]
    """Widths of the network from traces of frozen loops to the weights of the loops."""
    rectangles: bool = False
    """Include 1x2 rectangles where the mask leaves them a single active link: with 'm4'."""

    @property
    def loops(self) -> Literal["plaquette"]:
        """Active loops, as `SpectralOptions.loops`."""
        return "plaquette"


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
    def _check_prior(self) -> Self:
        if self.prior == "ensemble" and "draws" in self.model_fields_set:
            raise ValueError(
                "draws: with the prior 'ensemble' the configurations of the dataset are an epoch; "
                "remove model.draws, or choose the prior 'haar'"
            )
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
    objective: Literal["reverse_kl", "pseudofermions"] = "reverse_kl"
    """reverse_kl: compare the flow's own samples with the action. pseudofermions: train
    `model.pseudofermions` alone, with the initial flow of links, by path gradients of four
    pseudofermions per configuration."""
    gradient: Literal["ordinary", "path"] = "ordinary"
    """Estimator of the gradient of the reverse divergence. path: without the score of the weights,
    which has mean zero; the estimator is zero for an exact flow (Vaitl et al. 2022)."""
    memory: Literal["graph", "recompute"] = "recompute"
    """Storage for the backward pass of each layer: everything (graph), or the active links, from
    which the rest is recomputed."""

    @model_validator(mode="after")
    def _check_divergence(self) -> Self:
        if self.loss:
            raise ValueError(
                f"loss: {', '.join(self.loss)}: a flow is trained by train.objective; remove "
                "train.loss"
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
    learned_with = layers.learned_with if isinstance(layers, SpectralOptions) else ()
    if layers.loops == "learned" and patterns.isdisjoint(learned_with):
        raise ValueError(
            f"model.layers.loops: 'learned' with the masks {', '.join(learned_with)} "
            f"(learned_with), but graph.masks has {', '.join(sorted(patterns))} only; add a mask "
            "with which loops are learned, or choose 'plaquette'"
        )
    if train.objective == "pseudofermions" and model.pseudofermions is None:
        raise ValueError(
            "train.objective: 'pseudofermions' trains model.pseudofermions, which is not set; set "
            "it, or choose 'reverse_kl'"
        )
