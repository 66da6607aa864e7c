"""Micro-batches of gradient accumulation: whole samples, or a rank's domain of one structure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pipeline_core.batch import Batch, move_to_device
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.project.run import Run
from pipeline_core.task import Outputs, Samples, Task
from pipeline_kernels.halo import Transport

Ints = NDArray[np.int64]

_SUMS: Final = ("energy", "stress")
"""Fields of whole samples that are sums over atoms."""


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """A micro-batch of whole samples.

    Attributes:
        batch: Labels on this rank, and for whole samples the inputs of the model.
    """

    batch: Batch

    def predict(self, module: nn.Module) -> Outputs:
        """Return the predictions of the model for the rows of `batch`."""
        outputs: Outputs = module(self.batch)
        return outputs

    def to(self, device: torch.device) -> Self:
        """Move the tensors; from pinned memory the copy overlaps with computation."""
        return replace(self, batch=move_to_device(self.batch, device))

    def pin_memory(self) -> Self:
        """Put the tensors into pinned memory, which a GPU can read while it computes."""
        return replace(self, batch=_pin(self.batch))

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """Keep the memory, allocated on another stream, until this stream has used it."""
        _record(self.batch, stream)


@dataclass(frozen=True, eq=False)
class DomainMicroBatch(MicroBatch):
    """A rank's domain of one structure.

    A model that exchanges features of atoms itself is given a domain. Any other one gets own atoms
    and the ghost atoms that they depend on: own atoms and the edges that they receive are one
    sample, all others a second one, so that the model's sums over the first are the rank's part of
    the structure.

    Only rank 0 has labels of the sample. Gradients of its fields, which are sums over all ranks,
    are summed over ranks in turn.

    Attributes:
        inputs: Inputs of the model; may be `batch` itself.
        own_atoms: Numbers of own atoms in the structure; their rows come first, (n_own,).
        kinds: Kind of the rows of each output, by its name.
        ranks: The ranks with the other domains.
        domain: Halo exchange of rows of other ranks, the model's second argument, on its device;
            None for a model that exchanges nothing.
    """

    inputs: Batch
    own_atoms: Ints
    kinds: Mapping[str, str]
    ranks: Ranks
    domain: Any = None

    def predict(self, module: nn.Module) -> Outputs:
        """Return own rows, and fields of samples summed over ranks.

        All ranks call it together.
        """
        arguments = [self.inputs] if self.domain is None else [self.inputs, self.domain]
        outputs = module(*arguments)
        return {name: self._take(name, outputs[name]) for name in self.kinds if name in outputs}

    def to(self, device: torch.device) -> Self:
        """Move the tensors; from pinned memory the copy overlaps with computation."""
        return self._change(lambda batch: move_to_device(batch, device))

    def pin_memory(self) -> Self:
        """Put the tensors into pinned memory, which a GPU can read while it computes."""
        return self._change(_pin)

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """Keep the memory, allocated on another stream, until this stream has used it."""
        super().record_stream(stream)
        _record(self.inputs, stream)

    def _change(self, change: Callable[[Batch], Batch]) -> Self:
        batch = change(self.batch)
        is_same = self.inputs is self.batch
        return replace(self, batch=batch, inputs=batch if is_same else change(self.inputs))

    def _take(self, name: str, values: Tensor) -> Tensor:
        if self.kinds[name] == "atom":
            return values[: len(self.own_atoms)]
        if self.kinds[name] != "sample":
            return values
        if self.ranks.size == 1:
            return values[:1]
        total: Tensor = _SumOverRanks.apply(values[:1], self.ranks)  # type: ignore[no-untyped-call] # torch's
        return total


def require_divisible(kinds: Mapping[str, str]) -> None:
    """Check that the parts of all outputs make up the whole.

    Args:
        kinds: Kind of the rows of each output, by its name.

    Raises:
        ValueError: An output neither belongs to atoms nor is a sum over them.
    """
    for name, kind in kinds.items():
        if kind != "atom" and name not in _SUMS:
            raise ValueError(
                f"partition.parts: graph: the model predicts {name!r} of each {kind}, which does "
                f"not follow from its atoms; only fields of atoms and {', '.join(_SUMS)} do: set "
                "partition.parts to samples"
            )


class _SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return ranks.all_reduce_sum(values.detach().clone())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.ranks.all_reduce_sum(gradient.clone(memory_format=torch.contiguous_format)), None


LoadPart = Callable[[int], DomainMicroBatch]
"""Makes this rank's part of a sample from its number, without communication."""


class SampleDivider(Protocol):
    """Domain decomposition of the samples of a task over all ranks."""

    def divide(self, split: str, samples: Samples, numbers: Ints | None = None) -> LoadPart:
        """Choose the atoms that each rank owns in some samples; return the loader of own domains.

        All ranks call it together.
        """
        ...

    def divide_alone(
        self, samples: Samples, number: int, n_parts: int
    ) -> Callable[[Transport], DomainMicroBatch]:
        """Choose the atoms that each of some ranks would own, without the other ranks.

        Returns:
            Function that makes the domain of the rank of a transport.
        """
        ...


def make_divider(run: Run, task: Task, ranks: Ranks) -> SampleDivider:
    """Return the domain decomposition of single samples of a run (`partition.parts: graph`).

    Raises:
        ValueError: No plugin has one, or the model cannot work on domains.
    """
    hook = run.registry.select_hook("divider", run.model_info.name)
    divider: SampleDivider | None = hook(run=run, task=task, ranks=ranks)
    if divider is None:
        raise ValueError(
            f"{run.experiment}: partition.parts: graph: nothing divides samples of plugin "
            f"{run.model_info.name!r}; set partition.parts to samples"
        )
    return divider


def _pin(batch: Batch) -> Batch:
    return {name: tensor.pin_memory() for name, tensor in batch.items()}


def _record(batch: Batch, stream: torch.cuda.Stream) -> None:
    for tensor in batch.values():
        tensor.record_stream(stream)
