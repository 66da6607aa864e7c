"""Training history: running totals of an epoch, and its record as a line of JSON."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import torch
from torch import Tensor

from pipeline_core.artifacts.store import write_atomic
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.training.loader import Step

Record = dict[str, Any]

TIMES: Final = ("elapsed", "samples_per_s", "seconds")
"""Keys of a record that differ from call to call of the same training."""


@dataclass
class EpochTotals:
    """Sums over the steps of the running epoch.

    Attributes:
        sums: Sum of each term of the loss over the samples of this rank alone, (n_terms,).
        counts: Count of each term over all ranks, (n_terms,).
        norms: Sum of the gradient norms that are finite, and their number, (2,).
        steps: Optimizer steps.
        samples: Samples over all ranks.
        mean_load: Sum of the mean cost of a rank's share.
        largest_load: Sum of the largest cost of a rank's share.
        seconds: Time spent in steps.
    """

    sums: Tensor
    counts: Tensor
    norms: Tensor
    steps: int = 0
    samples: int = 0
    mean_load: float = 0.0
    largest_load: float = 0.0
    seconds: float = 0.0

    @classmethod
    def zero(cls, n_terms: int, device: torch.device) -> Self:
        """Return the totals of a new epoch."""
        zeros = torch.zeros(2 * n_terms + 2, dtype=torch.float64, device=device)
        return cls(*zeros.split([n_terms, n_terms, 2]))

    def add(self, step: Step, sums: Tensor, counts: Tensor, norm: Tensor) -> None:
        """Add one step; nothing waits for the device."""
        self.sums += sums
        self.counts += counts
        finite = norm.isfinite()
        self.norms += torch.stack([torch.where(finite, norm, 0), finite.double()])
        self.steps += 1
        self.samples += step.n_samples
        self.mean_load += float(step.loads.mean())
        self.largest_load += float(step.loads.max())

    def to(self, device: torch.device) -> None:
        """Move the sums to a device."""
        self.sums, self.counts, self.norms = (
            tensor.to(device) for tensor in (self.sums, self.counts, self.norms)
        )

    def all_reduce_sum(self, ranks: Ranks) -> None:
        """Replace the sums by their sums over ranks, the same on all of them."""
        ranks.all_reduce_sum(self.sums)

    def keep_on_rank_zero(self, ranks: Ranks) -> None:
        """Set the sums to zero on all ranks but rank 0, which keeps those of the epoch so far."""
        if not ranks.is_rank_zero:
            self.sums.zero_()


def compute_means(
    weights: Mapping[str, float], sums: Iterable[float], counts: Iterable[float]
) -> dict[str, float | None]:
    """Return the loss and the mean of each term; None for a term that no sample has labels for."""
    terms = {
        name: total / count if count else None
        for name, total, count in zip(weights, sums, counts, strict=True)
    }
    loss = sum(weights[name] * value for name, value in terms.items() if value is not None)
    return {"loss": loss, **terms}


def make_record(
    epoch: int,
    rate: float,
    weights: Mapping[str, float],
    totals: EpochTotals,
    validation: Mapping[str, Any],
    timing: Mapping[str, Any] | None = None,
) -> Record:
    """Return the line of an epoch.

    Args:
        epoch: Number of the epoch, from 1.
        rate: Learning rate.
        weights: Weights of the terms of the loss.
        totals: Totals over all ranks.
        validation: Result of `validate`; empty if there are no validation samples.
        timing: Further entries on times; None for none.

    Returns:
        epoch; lr; train and val (loss and terms); mae (of each quantity, in the engine's units);
        grad_norm (mean over steps, before clipping); balance (mean over largest share of the
        ranks, by the costs used for sharing); samples_per_s and seconds of the training
        steps. `Session.end_epoch` adds elapsed: time of the training so far, s, over all its
        starts, with validation and saving. With `train.profile` also profile: compute,
        communication and idle, s, each a list with one number per rank. With
        `partition.cost: fitted` also cost_model: constant, s, and the time of a row of each kind,
        s, used to share the next epoch; left out as long as the given costs are used.
    """
    norm, n_norms = totals.norms.tolist()
    return {
        "epoch": epoch,
        "lr": rate,
        "train": compute_means(weights, totals.sums.tolist(), totals.counts.tolist()),
        "val": None,
        "mae": {},
        **validation,
        "grad_norm": norm / n_norms if n_norms else None,
        "balance": totals.mean_load / totals.largest_load if totals.largest_load else 1.0,
        "samples_per_s": totals.samples / totals.seconds,
        "seconds": totals.seconds,
        **(timing or {}),
    }


def make_start_record(validation: Mapping[str, Any]) -> Record:
    """Return the line of epoch 0: errors of the initial weights of a fine-tuning.

    Args:
        validation: Result of `validate`.

    Returns:
        epoch, 0; train, None; val and mae as in other lines.
    """
    return {"epoch": 0, "train": None, **validation}


def append_record(path: Path, record: Record) -> None:
    """Add one line to a history.

    Raises:
        ValueError: The line cannot be written.
    """
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")
    except OSError as error:
        raise ValueError(
            f"{path}: the line of epoch {record['epoch']} cannot be written "
            f"({error.strerror or error}); free space on the disk, or choose another folder with "
            "--results, and call again: the training continues from its last saved state"
        ) from error


def write_history(path: Path, records: Sequence[Record]) -> None:
    """Replace a history, without lines that a killed training wrote after its saved state."""
    with write_atomic(path) as temporary:
        lines = [json.dumps(record, allow_nan=False) + "\n" for record in records]
        temporary.write_text("".join(lines), encoding="utf-8")
