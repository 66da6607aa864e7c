"""What passes through a model at once: whole samples, or a rank's part of one structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pipeline_core.batch import Batch, move_to_device
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.run import Run
from pipeline_core.task import Outputs, Samples, Task
from pipeline_kernels.halo import Transport

Ints = NDArray[np.int64]

_SUMS: Final = ("energy", "stress")
"""Fields of whole samples that are sums over atoms."""


@dataclass(frozen=True, eq=False)
class Piece:
    """Whole samples.

    Attributes:
        batch: Labels of this rank, and for whole samples the inputs of the model.
    """

    batch: Batch

    def predict(self, module: nn.Module) -> Outputs:
        """Return what the model predicts of the rows of `batch`."""
        outputs: Outputs = module(self.batch)
        return outputs

    def to(self, device: torch.device) -> Self:
        """Move the tensors; from pinned memory the copy overlaps with computation."""
        return replace(self, batch=move_to_device(self.batch, device))

    def pin_memory(self) -> Self:
        """Put the tensors where a GPU can read them while it computes."""
        return replace(self, batch=_pin(self.batch))

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """Keep the memory, allocated for another stream, until this one has used it."""
        _record(self.batch, stream)


@dataclass(frozen=True, eq=False)
class PartPiece(Piece):
    """A rank's part of one structure.

    A model that exchanges features of atoms itself is given a domain. Any other one gets own atoms
    with all that they depend on: own atoms and the edges that they receive make up one sample, all
    others a second one, so that what a model adds up for the first is the rank's part of the
    structure.

    Rank 0 alone has labels of the sample. Gradients of its fields, which all ranks have added up,
    are added over ranks in turn.

    Attributes:
        inputs: What the model is given; may be `batch` itself.
        own_atoms: Numbers of own atoms in the structure, whose rows come first, (n_own,).
        kinds: What a row of each output is, by its name.
        ranks: Who has the other parts.
        domain: What the model exchanges rows of other ranks by, its second argument, on its
            device; None for a model that exchanges nothing.
    """

    inputs: Batch
    own_atoms: Ints
    kinds: Mapping[str, str]
    ranks: Ranks
    domain: Any = None

    def predict(self, module: nn.Module) -> Outputs:
        """Return own rows, and fields of samples added over ranks.

        All ranks call it together.
        """
        arguments = [self.inputs] if self.domain is None else [self.inputs, self.domain]
        outputs = module(*arguments)
        return {name: self._take(name, outputs[name]) for name in self.kinds if name in outputs}

    def to(self, device: torch.device) -> Self:
        """Move the tensors; from pinned memory the copy overlaps with computation."""
        return self._change(lambda batch: move_to_device(batch, device))

    def pin_memory(self) -> Self:
        """Put the tensors where a GPU can read them while it computes."""
        return self._change(_pin)

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """Keep the memory, allocated for another stream, until this one has used it."""
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
    """Check that parts of all outputs make up the whole.

    Args:
        kinds: What a row of each output is, by its name.

    Raises:
        ValueError: An output belongs neither to atoms nor is it a sum over them.
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


LoadPart = Callable[[int], PartPiece]
"""Makes this rank's part of a sample from its number, without communication."""


class SampleDivider(Protocol):
    """Divides the samples of a task between all ranks."""

    def divide(self, split: str, samples: Samples, numbers: Ints | None = None) -> LoadPart:
        """Choose what each rank owns of some samples of a split; return what makes own parts.

        All ranks call it together.
        """
        ...

    def divide_alone(
        self, samples: Samples, number: int, n_parts: int
    ) -> Callable[[Transport], PartPiece]:
        """Choose what each of some ranks would own of a sample, without the other ranks.

        Returns:
            What makes the part of the rank that a transport is for.
        """
        ...


def make_divider(run: Run, task: Task, ranks: Ranks) -> SampleDivider:
    """Return what divides single samples of a run between ranks (`partition.parts: graph`).

    Raises:
        ValueError: Nothing does, or the model cannot work on parts.
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
