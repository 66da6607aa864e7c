"""The sections of an experiment: one strict model a stage, with the engine's defaults.

A plugin that does a stage differently brings its own model for that stage (`ModelInfo.sections`).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pipeline_core.config.limits import Ranks

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]


UNLIMITED: Final = 1_000_000_000
"""Epochs of a training that only time ends."""
PUBLISHED: Final = "published:"
"""Prefix of `train.start_from` for published weights, which are not a file."""
OF_VARIANT: Final = "variant:"
"""Prefix of `train.start_from` for a variant of the same experiment."""


class Section(BaseModel):
    """Base of all models of YAML files: unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    moved: ClassVar[Mapping[str, str]] = {}
    """Former options, each with its new name, or with its place in another section, such as
    "graph.cutoff". Experiments that set one are refused with its place."""
    formerly: ClassVar[Mapping[str, Any]] = {}
    """Newer options, each with the value that artifacts without it were made with, if that is not
    its default."""
    fixed: ClassVar[tuple[str, ...]] = ()
    """Options that fine-tuning shares with the model that it starts from."""


def require_different(names: Sequence[str]) -> None:
    """Check the names of the entries of a list.

    Raises:
        ValueError: Two of them are the same.
    """
    if len(set(names)) < len(names):
        raise ValueError(f"names {', '.join(names)} have to differ; rename one")


Strategy = Literal["balanced", "capped", "random", "pairing", "next_fit", "mace_bins"]


PartitionMethod = Literal["auto", "low_nn", "metis", "metis_volume", "grid", "slices"]
"""Methods of `pipeline_kernels.partition`, which is too heavy to import here."""


class Link(Section):
    """Cost of messages between ranks: n bytes take latency + n / bandwidth.

    The defaults are for GPUs: the bandwidth measured in the paper of Low-NN (arXiv:2507.03840), and
    an assumed latency.
    """

    latency: NotNegative = 20e-6
    """Latency of a message, s."""
    bandwidth: Positive = 20.4e9
    """Bandwidth, bytes/s."""

    def time(self, n_bytes: float, n_messages: float = 1) -> float:
        """Return the time of some messages of `n_bytes` in all, s."""
        return n_messages * self.latency + n_bytes / self.bandwidth

    def time_ring(self, n_bytes: float, n_ranks: int) -> float:
        """Return the time of a ring all-reduce of `n_bytes`, s.

        R. Thakur et al., doi:10.1177/1094342005051521: 2 (p - 1) messages of n / p bytes.
        """
        return 2 * (n_ranks - 1) * self.time(n_bytes / n_ranks)

    def count_rows(self, n_bytes: float) -> float:
        """Return the number of rows of `n_bytes` that could be sent in the latency of a message."""
        return self.latency * self.bandwidth / n_bytes


class PartitionOptions(Section):
    """Division of work between ranks: whole samples, or domains of each structure."""

    parts: Literal["samples", "graph", "auto"] = "samples"
    """samples: data parallel, each rank takes whole samples. graph: domain decomposition, each rank
    takes a domain of each structure, with ghost atoms, for structures that are too large for one
    rank, or fewer structures than ranks; the model must declare the range over which atoms
    influence each other. In training, structures that cost less than one rank's share of the
    largest are not split. auto: graph in training if a structure costs more than `capacity` or than
    twice a rank's equal share of a step, and the model can be divided; else samples, and always
    samples in evaluation. The training log states the choice."""
    method: PartitionMethod = "auto"
    """Domain decomposition of the atoms of a structure, with parts: graph."""
    link: Link = Link()
    """Cost of a halo exchange between domains, by which auto and grid choose."""
    capacity: Positive | None = None
    """Largest cost that a rank holds in memory at once (a micro-batch): a larger share of a step is
    split, with gradient accumulation; null for no limit.

    The partition stage reports the costs of the samples.
    """
    strategy: Strategy = "balanced"
    """Distribution of the samples of an epoch over steps and ranks.

    The first four share windows of the shuffled samples. balanced: equal cost for all ranks; the
    costliest remaining sample goes to the rank with the lowest cost. capped: the same, but samples
    beyond `capacity` wait for a later step. random: equal numbers. pairing: the cheapest and the
    costliest remaining sample, in turn, as in FastCHGNet. With balanced, random and pairing a step
    has the same samples for any number of ranks.

    The others fill one bin per rank and step, of `train.batch_size` samples of mean cost over the
    number of ranks, and ignore `train.batch_by`. next_fit: in order, as in PyTorch Geometric and
    fairchem. mace_bins: algorithm 1 of MACE's training paper, arXiv:2504.10700.
    """
    cost: Literal["given", "fitted"] = "given"
    """Cost that balanced and capped shares make equal.

    given: the costs of the plugin, which follow from sizes alone. fitted: the time of a sample, Σ_k
    c_k n_k over its atoms, edges and angles, fitted after each epoch to the times of the shares of
    all ranks. Ranks then finish together on the machine in use, but a repeated training on several
    ranks is no longer bit-identical, as times differ. The given costs are used in the first epoch,
    and always for windows (`train.batch_by`) and memory.
    """
    ranks: list[Ranks] = [1, 2, 4, 8, 16, 32, 64]
    """Numbers of ranks for which the balance is reported."""
    samples_per_rank: Count = 16
    """Mean number of samples per rank and step for which the balance is reported."""

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
    """Learning-rate schedule."""

    name: Literal["constant", "cosine", "step", "plateau"] = "constant"
    warmup_epochs: Annotated[int, Field(ge=0)] = 0
    """Linear warm-up from a tenth of the rate, before the named schedule starts."""
    final_fraction: Fraction = 0.01
    """Cosine: last rate over first; with `train.minutes` the curve follows the used fraction of the
    time, or of the epochs if that is larger. Step and plateau: lowest rate over first."""
    factor: Fraction = 0.5
    """Step and plateau: factor of each reduction."""
    every: Count = 10
    """Step: epochs between two reductions. Plateau: epochs without improvement before one."""


class LossTerm(Section):
    """Loss of one predicted field."""

    kind: Literal["huber", "mse", "mae"] = "huber"
    weight: NotNegative = 1.0
    delta: Positive = 0.1
    """Huber: error, in `unit`, at which the square turns linear."""
    unit: str | None = None
    """Unit of the error, such as GPa; null for the engine's unit."""


class TrainOptions(Section):
    """Hyperparameters and limits of the shared trainer."""

    epochs: Annotated[int, Field(ge=0)] = 100
    """Number of epochs; 0 trains nothing and uses the weights of `start_from` as they are. With
    `minutes` and without epochs, their number is not limited."""
    minutes: Positive | None = None
    """Longest wall time of the training, over all its starts; null for no limit. With `epochs` as
    well, the first limit ends it. The time before the last checkpoint counts where a training was
    killed. An epoch that would end too late is not started, except the first."""
    batch_size: Count | Literal["all"] = 16
    """Samples of one optimizer step over all ranks, for any number of ranks."""
    batch_by: Literal["count", "cost"] = "count"
    """Windows of the shuffled samples: of equal numbers of samples, or of equal costs."""
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    loss: dict[str, LossTerm] = {}
    """Terms of the loss by field name."""
    head_weights: dict[str, NotNegative] = {}
    """Weight in the loss of the samples of each head of the model, by its name; 1 by default."""
    clip_norm: Positive | None = None
    """Largest norm of the gradient; null for no limit."""
    ema_decay: Fraction | None = None
    """Decay per step of the exponential moving average of the weights; null for none.

    If there is an average, it is evaluated and stored.
    """
    precision: Literal["32-true", "64-true", "bf16-mixed", "16-mixed"] = "32-true"
    patience: Count | None = None
    """Early stopping: epochs without a lower validation loss before training ends; null for
    none."""
    checkpoint_steps: Count | None = None
    """Steps between two checkpoints within an epoch; null for one after each epoch only."""
    start_from: str | None = None
    """Weights to fine-tune: the path of a model.pt, "variant:NAME" for the model of another variant
    of the experiment, as in a training of two stages, or "published:NAME" if the plugin has it.
    Heads for forces and stress of a model.pt are dropped where the model here has others or
    none."""
    freeze: list[str] = []
    """Parts of the model with frozen weights, as at the start of training: names that the plugin
    gives its parts, or the beginnings of names of parameters, such as "interactions.0"."""
    reference_energies: Literal["model", "dataset"] = "model"
    """Free-atom energies of a fine-tuned potential: those its weights were trained with, or the
    dataset's, for energies of another level of theory. For elements and heads that the model does
    not have, the dataset's are always taken."""
    profile: bool = False
    """Record in the history how long each rank computed, communicated and waited.

    To separate waiting from communication the ranks synchronise once more in each step.
    """
    deterministic: bool = True
    """Use deterministic algorithms, bit-identical for the same input, where the device has them."""

    @property
    def uses_shared_trainer(self) -> bool:
        """True if the engine runs the training steps, and not the plugin."""
        return True

    @property
    def planned_epochs(self) -> int | None:
        """The number of epochs; None where only time ends the training."""
        return None if self.epochs == UNLIMITED else self.epochs

    def limit_seconds(self, epoch: float) -> float:
        """Return the longest time of the training, s, if an epoch takes `epoch` s."""
        seconds = self.epochs * epoch
        return seconds if self.minutes is None else min(seconds, 60 * self.minutes)

    @property
    def learning_rate(self) -> float:
        """The learning rate after the warm-up and before the schedule lowers it."""
        if self.optimizer.lr_batch_size is None or self.batch_size == "all":
            return self.optimizer.lr
        return self.optimizer.lr * self.batch_size / self.optimizer.lr_batch_size

    @model_validator(mode="after")
    def _lift_epochs(self) -> Self:
        if self.minutes is not None and "epochs" not in self.model_fields_set:
            # The section is frozen after this. Before validation JSON could not be read strictly.
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
                "reference_energies: without fine-tuning those of the dataset are used; remove "
                "the key, or set train.start_from"
            )
        return self


class EvaluateOptions(Section):
    """Predictions to compare with the labels."""

    splits: list[Literal["train", "val", "test"]] = ["val", "test"]


class FiguresOptions(Section):
    """Figures to draw."""

    names: list[str] | Literal["all"] = "all"
    formats: list[Literal["png", "svg", "pdf"]] = ["png", "svg", "pdf"]
