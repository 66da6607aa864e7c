"""The sections of an experiment: one strict model a stage, with the engine's defaults.

A plugin that does a stage differently brings its own model for that stage (`ModelInfo.sections`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pipeline_core.config.limits import Copies, Ranks, require_memory

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]


UNLIMITED: Final = 1_000_000_000
"""Epochs of a training that time alone ends."""
PUBLISHED: Final = "published:"
"""What `train.start_from` begins with if it names published weights and no file."""
OF_VARIANT: Final = "variant:"
"""What `train.start_from` begins with if it names a variant of the same experiment."""


def require_different(names: Sequence[str]) -> None:
    """Check the names of the entries of a list.

    Raises:
        ValueError: Two of them are the same.
    """
    if len(set(names)) < len(names):
        raise ValueError(f"names {', '.join(names)} have to differ; rename one")


class Section(BaseModel):
    """Base of all that is read from YAML: unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    moved: ClassVar[Mapping[str, str]] = {}
    """Options that stood here in earlier versions, and where each stands now."""
    fixed: ClassVar[tuple[str, ...]] = ()
    """Options that fine-tuning shares with the model that it starts from."""


Strategy = Literal["balanced", "capped", "random", "pairing", "next_fit", "mace_bins"]


PartitionMethod = Literal["auto", "low_nn", "metis", "metis_volume", "grid", "slices"]
"""Methods of `pipeline_kernels.partition`, which is too heavy to be imported here."""


class LinkOptions(Section):
    """What messages between ranks take, by which auto and grid choose.

    The defaults are those of GPUs: the bandwidth that the paper of Low-NN measures
    (arXiv:2507.03840), and an assumed latency.
    """

    latency: NotNegative = 20e-6
    """Seconds of a message."""
    bandwidth: Positive = 20.4e9
    """Bytes per second."""


class PartitionOptions(Section):
    """How work is divided between ranks: samples, or the atoms of each structure."""

    parts: Literal["samples", "graph", "auto"] = "samples"
    """samples: each rank takes whole samples. graph: each rank takes a domain of each structure,
    for structures that are too large for one rank, or fewer than ranks; the model must say how far
    atoms influence each other. A training takes those whole that cost no more than a rank's part of
    the costliest. auto: a training is divided as graph if a structure costs more than `capacity` or
    than twice a rank's equal share of a step, and the model can; else as samples. Its log says
    which. Evaluation takes whole samples then."""
    method: PartitionMethod = "auto"
    """How the atoms of a structure are divided, with parts: graph."""
    link: LinkOptions = LinkOptions()
    """What an exchange between domains takes, with parts: graph."""
    capacity: Positive | None = None
    """Largest cost that a rank holds in memory at once; null for no limit.

    The partition stage reports the costs of the samples.
    """
    strategy: Strategy = "balanced"
    """How the samples of an epoch are shared between steps and ranks.

    The first four share windows of the shuffled samples. balanced: equal cost for all ranks, as
    the costliest sample left goes to the rank that has least. capped: the same, but what would
    exceed `capacity` waits for a later step. random: equal numbers. pairing: the cheapest and the
    costliest sample left, in turn, as FastCHGNet does. With balanced, random and pairing a step
    holds the same samples whatever the number of ranks.

    The others fill one bin a rank and step, of `train.batch_size` samples of mean cost over the
    number of ranks, and ignore `train.batch_by`. next_fit: in order, as PyTorch Geometric
    and fairchem do. mace_bins: algorithm 1 of MACE's training paper, arXiv:2504.10700.
    """
    cost: Literal["given", "fitted"] = "given"
    """What balanced and capped shares are to have equal parts of.

    given: the costs that the plugin gives, which follow from sizes alone. fitted: the time that a
    sample takes, Σ_k c_k n_k over its atoms, edges and angles, fitted after each epoch to the
    times of the shares of all ranks. Ranks then finish together on the machine that they are on,
    but a repeated training on several ranks no longer has the same bits, as times differ. The given
    costs share the first epoch, and always form windows (`train.batch_by`) and limit memory.
    """
    ranks: list[Ranks] = [1, 2, 4, 8, 16, 32, 64]
    """Numbers of ranks for which the balance is reported."""
    samples_per_rank: Count = 16
    """Samples of a step that each rank takes on average where the balance is reported."""

    @model_validator(mode="after")
    def _check_capacity(self) -> Self:
        if self.strategy == "capped" and self.capacity is None:
            raise ValueError(
                "strategy: 'capped' needs a capacity; set partition.capacity, or choose 'balanced'"
            )
        return self

    @model_validator(mode="after")
    def _check_cost(self) -> Self:
        if self.cost == "fitted" and self.strategy not in ("balanced", "capped"):
            raise ValueError(
                f"cost: 'fitted' has no influence on the strategy {self.strategy!r}; set "
                "partition.cost to 'given', or choose the strategy 'balanced' or 'capped'"
            )
        return self


class Optimizer(Section):
    """Adam or AdamW."""

    name: Literal["adam", "adamw"] = "adam"
    lr: Positive = 1e-3
    lr_batch_size: Count | None = None
    """Batch size that `lr` belongs to: training takes lr * train.batch_size / lr_batch_size, as
    Zhou et al., arXiv:2412.20796, equation (14) (3e-4 and 128 there). Null: `lr` as it is."""
    weight_decay: NotNegative = 0.0
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)


class Schedule(Section):
    """Learning rate over the training."""

    name: Literal["constant", "cosine", "step", "plateau"] = "constant"
    warmup_epochs: Annotated[int, Field(ge=0)] = 0
    """Linear rise from a tenth of the rate, before the named schedule starts."""
    final_fraction: Fraction = 0.01
    """Cosine: last rate over first; with `train.minutes` the curve follows the share of the time
    that is used, or that of the epochs if it is larger. Step and plateau: lowest rate over
    first."""
    factor: Fraction = 0.5
    """Step and plateau: what the rate is multiplied with."""
    every: Count = 10
    """Step: epochs between two reductions. Plateau: epochs without improvement before one."""


class LossTerm(Section):
    """Loss of one predicted field."""

    kind: Literal["huber", "mse", "mae"] = "huber"
    weight: NotNegative = 1.0
    delta: Positive = 0.1
    """Huber: error, in `unit`, at which the square turns linear."""
    unit: str | None = None
    """Unit in which the error is taken, such as GPa; null for the engine's unit."""


class TrainOptions(Section):
    """The shared trainer."""

    epochs: Annotated[int, Field(ge=0)] = 100
    """0 trains nothing: the weights of `start_from` are used as they are. Where `minutes` are given
    and no epochs, there is no limit to them."""
    minutes: Positive | None = None
    """Wall time that the training may take, over all its starts; null for no limit. With `epochs`
    ends what comes first. The time before the last saved state counts where a training was killed.
    An epoch that would end too late is not begun, but for the first."""
    batch_size: Count | Literal["all"] = 16
    """Samples of one optimizer step over all ranks, however many there are."""
    batch_by: Literal["count", "cost"] = "count"
    """Whether the windows of the shuffled samples hold equal numbers or equal costs."""
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    loss: dict[str, LossTerm] = {}
    """Terms by field name."""
    head_weights: dict[str, NotNegative] = {}
    """What samples of a head of the model count in the loss, by its name; 1 where none is given."""
    clip_norm: Positive | None = None
    """Largest norm of the gradient; null for no limit."""
    ema_decay: Fraction | None = None
    """Decay per step of the moving average of the weights; null for none.

    Where there is an average, it is what is evaluated and kept.
    """
    precision: Literal["32-true", "64-true", "bf16-mixed", "16-mixed"] = "32-true"
    patience: Count | None = None
    """Epochs without a better validation loss before training ends; null to train all epochs."""
    checkpoint_steps: Count | None = None
    """Steps between two saved states within an epoch; null to save after each epoch only."""
    start_from: str | None = None
    """Weights to fine-tune: the path of a model.pt, "variant:NAME" for that of another variant of
    the experiment, as in a training of two stages, or "published:NAME" if the plugin has it. Heads
    for forces and stress of a model.pt are left out where the model here has others or none."""
    freeze: list[str] = []
    """Parts of the model that keep the weights that the training begins with: names that the plugin
    gives its parts, or the beginnings of names of parameters, such as "interactions.0"."""
    reference_energies: Literal["model", "dataset"] = "model"
    """Whose energies of free atoms a fine-tuned potential has: those that its weights were trained
    beside, or those of the dataset, for energies of another level of theory. Of elements that the
    model does not know, and of heads that it does not have, they are those of the dataset in any
    case."""
    profile: bool = False
    """Whether the history says how long each rank computed, communicated and waited.

    To separate waiting from communication the ranks synchronise once more in each step.
    """
    deterministic: bool = True
    """Use algorithms that give the same bits for the same input where the device offers them."""

    @property
    def uses_shared_trainer(self) -> bool:
        """Whether the engine does the steps, not the plugin by itself."""
        return True

    @property
    def planned_epochs(self) -> int | None:
        """The number of epochs; None where time alone ends the training."""
        return None if self.epochs == UNLIMITED else self.epochs

    def limit_seconds(self, epoch: float) -> float:
        """Return the longest time of the training, s, of which an epoch takes `epoch` s."""
        seconds = self.epochs * epoch
        return seconds if self.minutes is None else min(seconds, 60 * self.minutes)

    @property
    def learning_rate(self) -> float:
        """The rate after the rise and before the schedule falls."""
        if self.optimizer.lr_batch_size is None or self.batch_size == "all":
            return self.optimizer.lr
        return self.optimizer.lr * self.batch_size / self.optimizer.lr_batch_size

    @model_validator(mode="after")
    def _lift_epochs(self) -> Self:
        if self.minutes is not None and "epochs" not in self.model_fields_set:
            # The section is frozen from here on. Before validation JSON could not be read strictly.
            object.__setattr__(self, "epochs", UNLIMITED)
        return self

    @model_validator(mode="after")
    def _check_lr_batch_size(self) -> Self:
        if self.optimizer.lr_batch_size is not None and self.batch_size == "all":
            raise ValueError(
                "optimizer.lr_batch_size: the rate cannot be scaled by batch_size: all; give "
                "train.batch_size as a number, or remove train.optimizer.lr_batch_size"
            )
        return self

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        if self.loss and not any(term.weight for term in self.loss.values()):
            raise ValueError(
                f"loss: all weights ({', '.join(self.loss)}) are zero, so nothing would be "
                "trained; give one of them a weight above zero"
            )
        return self

    @model_validator(mode="after")
    def _check_epochs(self) -> Self:
        if self.epochs == 0 and self.start_from is None:
            raise ValueError(
                "epochs: 0 trains nothing; set train.start_from to the weights that are to be used "
                "as they are, or give a number of epochs"
            )
        return self

    @model_validator(mode="after")
    def _check_minutes(self) -> Self:
        if self.minutes is not None and self.epochs == 0:
            raise ValueError(
                "minutes: epochs: 0 trains nothing, so no time is needed; remove one of the two"
            )
        return self

    @model_validator(mode="after")
    def _check_reference_energies(self) -> Self:
        if self.reference_energies == "dataset" and self.start_from is None:
            raise ValueError(
                "reference_energies: those of the dataset are taken in any case where no model is "
                "fine-tuned; remove the key, or set train.start_from"
            )
        return self


class EvaluateOptions(Section):
    """What is compared with the labels."""

    splits: list[Literal["train", "val", "test"]] = ["val", "test"]


_FRAME_BYTES: Final = 64
"""Bytes of a frame's observables, which are in memory when a run is summed up."""


class UncertaintyLimits(Section):
    """What molecular dynamics of a committee may be unsure of.

    Numbers are half widths of the calibrated 95 % interval of a force component, eV/Å, of the atom
    for which it is the widest.
    """

    flag_above: Positive | None = None
    """From where on a stored frame is flagged; null for twice the half width that 99 % of the
    validation split stay below: beyond, there is little evidence that the interval is right."""
    stop_above: Positive | None = None
    """From where on a run ends, at whichever step; null to run to its end."""


class MolecularDynamics(Section):
    """One molecular-dynamics run."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    ensemble: Literal["nve", "nvt_langevin", "nvt_nose_hoover", "npt"] = "nve"
    steps: Count = 500
    timestep: Positive = 1.0
    """fs"""
    temperature: Positive = 300.0
    """K; also of the initial velocities."""
    friction: Positive = 0.01
    """Langevin: 1/fs."""
    damping: Positive = 100.0
    """Nosé-Hoover and NPT: time scale of the thermostat, fs."""
    pressure: float = 0.0
    """NPT: external pressure, GPa."""
    barostat_damping: Positive = 1000.0
    """NPT: time scale of the barostat, fs."""
    start: str = "test:0"
    """A sample of the dataset as split:number, or the path of a file that ASE can read."""
    repeat: Copies = (1, 1, 1)
    """Copies of the cell along its vectors."""
    every: Count = 10
    """Steps between two stored frames."""
    restart_every: Count = 1000
    """Steps between two states from which an interrupted run goes on, to the same bits."""
    uncertainty: UncertaintyLimits | None = None
    """Of a committee (`members`), whose runs store how sure they are in any case."""

    @model_validator(mode="after")
    def _check_frames(self) -> Self:
        n_frames = 1 + self.steps // self.every
        require_memory(
            n_frames * _FRAME_BYTES, f"observables of {n_frames:.3g} frames", "raise every"
        )
        return self


class FiguresOptions(Section):
    """What is drawn."""

    names: list[str] | Literal["all"] = "all"
    formats: list[Literal["png", "svg", "pdf"]] = ["png", "svg", "pdf"]
