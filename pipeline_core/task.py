"""Interface of a model to the shared trainer, the load balancer and the shared evaluation.

Losses travel as sums and counts. A count depends on the labels of a batch only, so that ranks can
agree on the global count before any of them runs the backward pass; then gradients of unequal
shares add up to exactly the gradient of the whole batch.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from pipeline_core.batch import Batch
from pipeline_core.fields import Field, find_field
from pipeline_core.project.run import Run
from pipeline_core.system.seeds import seed_everything

Outputs = dict[str, Tensor]
Sizes = Mapping[str, NDArray[np.int64]]
"""Number of rows of each kind in each sample: kind -> (n_samples,); "sample" itself counts 1."""


def sum_rows(sizes: Sizes) -> NDArray[np.float64]:
    """Return the number of rows of all kinds in each sample, (n_samples,)."""
    total: NDArray[np.float64] = np.sum(list(sizes.values()), axis=0, dtype=np.float64)
    return total


class Samples(Protocol):
    """The samples of one split."""

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    def sizes(self) -> Sizes:
        """Return the number of rows of each kind in each sample."""
        ...

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return the samples with these numbers as one batch on the CPU.

        Called ahead of time on another thread: do not draw from a global generator.
        """
        ...


@runtime_checkable
class DrawnSamples(Samples, Protocol):
    """Samples that are drawn, not stored, such as samples of a flow's prior.

    Training takes new ones in each epoch. Draw each from its number and the epoch alone: then a
    resumed training, and one on other ranks, gets the same samples.
    """

    def of_epoch(self, epoch: int) -> Samples:
        """Return as many samples, drawn for an epoch (counted from 0)."""
        ...


class Objective(Protocol):
    """A training loss: sum over terms of weight * sum / count, both taken over all ranks."""

    @property
    def weights(self) -> Mapping[str, float]:
        """Weight of each term."""
        ...

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """Return the number of terms that each sum will have; depends on labels only."""
        ...

    def sums(self, outputs: Outputs, batch: Batch) -> dict[str, Tensor]:
        """Return the sum of each term, connected to the outputs even where its count is zero."""
        ...


@dataclass(frozen=True)
class Quantity:
    """A predicted field that has labels.

    Attributes:
        name: Field name, the same in outputs and in batches.
        per_atom: True to compare values divided by the number of atoms, as for total energies.
        own_field: Shape, unit and kind of a field of the plugin's own; None for one of the shared
            `FIELDS`.

    Raises:
        ValueError: The own field has another name.
    """

    name: str
    per_atom: bool = False
    own_field: Field | None = None

    def __post_init__(self) -> None:
        if self.own_field is not None and self.own_field.name != self.name:
            raise ValueError(
                f"the quantity {self.name!r} has a field called {self.own_field.name!r}; "
                "give both one name"
            )

    @property
    def field(self) -> Field:
        """Shape, unit and kind of the quantity.

        Raises:
            ValueError: It is not a shared field and has none of its own.
        """
        return self.own_field or find_field(self.name)


@dataclass(frozen=True)
class StartError:
    """Error of a quantity with the weights that a training starts from, over a split.

    Attributes:
        count: Number of labels.
        mean: Mean of prediction minus label, in the engine's unit (per atom if the quantity is).
        scatter: Standard deviation of the difference.
        mae: Mean of its absolute value.
        label_mean_absolute: Mean absolute value of the labels.
    """

    count: int
    mean: float
    scatter: float
    mae: float
    label_mean_absolute: float


@dataclass(frozen=True, kw_only=True)
class Task:
    """A model ready to be trained or evaluated.

    Attributes:
        module: `module(batch)` returns the outputs; a gradient is recorded only if the caller has
            gradients enabled.
        objective: The training loss.
        quantities: Fields compared with labels, in training logs and in evaluation; may be empty.
        samples: Function from the name of a split to its samples.
        cost: Function from sizes to the relative time of a sample, (n_samples,), to balance ranks;
            the number of rows by default.
        metadata: Data of `model.pt` besides weights to rebuild the module, JSON-able.
        probe: Makes a small input to check a stored model with; None for the smallest samples of
            the data, which one process must be able to predict.
        explain_start: Function from the errors of a start from a trained model, by quantity, to
            warnings, each with its cure.
        receptive_field: Distance, in edges of the graph, within which atoms influence the energy or
            the features of an atom: the number of message-passing layers. It allows domain
            decomposition of single structures (`partition.parts: graph`), in which each rank works
            on its own atoms and all ghost atoms that they depend on; None for a model that cannot
            be divided like this. Not used where samples are `DomainSamples`, whose model exchanges
            features itself.
        bytes_per_atom: Bytes that ranks exchange per atom and layer, a weight in the decomposition.
    """

    module: nn.Module
    objective: Objective
    samples: Callable[[str], Samples]
    cost: Callable[[Sizes], NDArray[np.float64]] = sum_rows
    quantities: tuple[Quantity, ...] = ()
    metadata: Mapping[str, Any] | None = None
    probe: Callable[[], Batch] | None = None
    explain_start: Callable[[Mapping[str, StartError]], Iterable[str]] = lambda errors: ()
    receptive_field: int | None = None
    bytes_per_atom: float = 1600.0


def build_task(run: Run, metadata: Mapping[str, Any] | None = None) -> Task:
    """Return the task of a run's plugin, with weights drawn from the seed of the run.

    Args:
        run: The run.
        metadata: Metadata of the trained model that is to be rebuilt; None for a new one.

    Raises:
        ValueError: The plugin has none.
    """
    name = run.model_info.name
    seed_everything(run.seed)
    if metadata is not None:
        run = replace(run, metadata=metadata)
    task: Task | None = run.registry.select_hook("task", name)(run=run)
    if task is None:
        raise ValueError(
            f"plugin {name!r} gives no task: implement the hook task(run), or the stages that need "
            "one"
        )
    return task
