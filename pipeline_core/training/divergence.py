"""Divergence of a training: its detection, the error with the cure, and the changes to resume."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from pipeline_core.artifacts.samples import SampleFile
from pipeline_core.artifacts.store import write_json
from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.fields import SPLITS
from pipeline_core.project.run import Run
from pipeline_core.training.balance.sampler import Numbers

CURES: Final = ("train.optimizer.lr", "train.optimizer.lr_batch_size", "train.clip_norm")
"""Facts that may change when a diverged training resumes from its saved state."""
_SHOWN: Final = 5
"""Samples that a message names."""


class DivergedError(ValueError):
    """A training has diverged, on all ranks alike."""


@dataclass(frozen=True)
class Seen:
    """Loss of a step over all ranks, and norm of its gradient before clipping."""

    loss: float
    norm: float

    def __str__(self) -> str:
        return f"loss {self.loss:.3g}, gradient norm {self.norm:.3g}"


class StepWatch:
    """Losses and gradient norms since the last look; adding never waits for the device.

    Args:
        ranks: Ranks that train; all look at the same steps.
        scaled: Whether gradients may be infinite now and then, since float16 loss scaling is
            adjusted by overflow.
    """

    def __init__(self, ranks: Ranks, *, scaled: bool) -> None:
        self._ranks, self._scaled = ranks, scaled
        self._losses: list[Tensor] = []
        self._norms: list[Tensor] = []
        self.before: Seen | None = None
        """The last finite step that was looked at."""

    def add(self, loss: Tensor, norm: Tensor) -> None:
        """Record a step: this rank's part of its loss, and the gradient norm over all ranks."""
        self._losses.append(loss)
        self._norms.append(norm)

    def look(self) -> tuple[int, Seen] | None:
        """Check the recorded steps and clear them; all ranks call it.

        Returns:
            Number of steps since the first non-finite one, 1 for the last one, with its loss and
            norm; None if all were finite.
        """
        if not self._losses:
            return None
        losses = self._ranks.all_reduce_sum(torch.stack(self._losses)).tolist()
        norms = torch.stack(self._norms).tolist()
        steps = [Seen(*both) for both in zip(losses, norms, strict=True)]
        self._losses, self._norms = [], []
        for number, seen in enumerate(steps):
            if not (math.isfinite(seen.loss) and (self._scaled or math.isfinite(seen.norm))):
                return len(steps) - number, seen
            self.before = seen
        return None


def name_samples(run: Run, n_train: int, numbers: Numbers) -> list[str]:
    """Return file and frame of training samples; their numbers if the data do not name them.

    Args:
        run: Its data are read.
        n_train: Number of training samples.
        numbers: Numbers of the samples to name.
    """
    if run.dataset is not None:
        try:
            with SampleFile(run.data, "data", ["split", "source"], preload=False) as data:
                rows = np.flatnonzero(data.read_column("split") == SPLITS.index("train"))
                if len(rows) == n_train:
                    return [str(data.read_field("source", row)) for row in rows[numbers].tolist()]
        except ValueError:
            pass  # a plugin's own layout
    return [f"train sample {number}" for number in numbers.tolist()]


def list_some(names: Sequence[str]) -> str:
    """Return the first few names, and the number of others."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class Divergence:
    """Place of a divergence: the first non-finite numbers of a training.

    Attributes:
        epoch: From 1.
        what: The non-finite numbers, in words.
        step: From 1; None if unknown.
        before: Loss and norm of the step before.
        samples: Names of the samples of the step, on all ranks.
        kind: Kind of these samples, in words.
    """

    epoch: int
    what: str
    step: int | None = None
    before: Seen | None = None
    samples: Sequence[str] = ()
    kind: str = "samples of the step"

    @property
    def place(self) -> str:
        """Step and epoch, in words."""
        epoch = f"epoch {self.epoch}"
        return epoch if self.step is None else f"step {self.step} of {epoch}"

    def explain(self, options: TrainOptions, note: Path) -> list[str]:
        """Return the event and its cure, as parts of a sentence.

        Args:
            options: Options of the training.
            note: File with a list of all samples.
        """
        words = [f"the training diverged in {self.place}: {self.what}"]
        if self.before is not None:
            words.append(f"in the step before {self.before}")
        if self.samples:
            words.append(f"{self.kind} (all in {note}): {list_some(self.samples)}")
        clip = (
            "set train.clip_norm"
            if options.clip_norm is None
            else f"lower train.clip_norm (now {options.clip_norm:g})"
        )
        words.append(
            f"lower train.optimizer.lr (now {options.optimizer.lr:g}), {clip}, or look for wrong "
            "labels"
        )
        return words


def write_note(path: Path, divergence: Divergence, saved: tuple[int, int] | None) -> None:
    """Write beside a saved state that the training diverged after it.

    Args:
        path: The note.
        divergence: Its place.
        saved: Finished epochs of the state, and finished steps of the epoch after them; None if
            there is no state.
    """
    content = {
        "state": saved and dict(zip(("epoch", "step"), saved, strict=True)),
        "diverged_in": divergence.place,
        "samples": list(divergence.samples),
    }
    write_json(path, content)


def has_diverged(path: Path, epoch: int, step: int) -> bool:
    """Return True if a note records a divergence after a saved state."""
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(note, dict) and note.get("state") == {"epoch": epoch, "step": step}
