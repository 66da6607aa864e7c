"""The course of a training, whatever its steps are: how far it has come, and its files.

Every decision (best epoch, end) is taken by all ranks alike, from numbers that have been added
over ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from pipeline_core.balance.sampler import Numbers
from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.run import Run
from pipeline_core.task import Task
from pipeline_core.training import history, state
from pipeline_core.training.checkpoint import write_model
from pipeline_core.training.history import Record
from pipeline_core.training.optimizers import LearningRate
from pipeline_core.training.start import initialize_weights


@dataclass
class Progress:
    """How far a training has come.

    Attributes:
        epoch: Finished epochs.
        step: Finished steps of the epoch after them.
        best_loss: Least loss so far.
        best_epoch: Epoch, from 1, that had it; 0 before the first.
        best_weights: Weights after it, on the CPU; on rank 0 only.
        history: Lines of the finished epochs.
    """

    epoch: int = 0
    step: int = 0
    best_loss: float = float("inf")
    best_epoch: int = 0
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    history: list[Record] = field(default_factory=list)


class Session:
    """One training, as one of its ranks sees it: resumed or begun, recorded, saved, ended.

    Args:
        run: The run.
        task: Freshly built, its module on the CPU.
        options: The section of the run.
        ranks: Who trains.
        sharing: What the result depends on besides data and options: name of each fact to its
            value as text; rank 0 alone is asked.

    Attributes:
        progress: How far it has come.
    """

    def __init__(
        self,
        run: Run,
        task: Task,
        options: TrainOptions,
        ranks: Ranks,
        sharing: Mapping[str, str] | None = None,
    ) -> None:
        self._run, self._task, self._options, self._ranks = run, task, options, ranks
        self._facts: dict[str, str] = {}
        if ranks.is_rank_zero:
            self._facts = state.resume_key(run, options) | dict(sharing or {})
        self.progress = Progress()

    @property
    def _path(self) -> Path:
        return self._run.state / "last.pt"

    def start(self) -> dict[str, Any] | None:
        """Give the module its weights, the same on all ranks, and move it to their device.

        Returns:
            What `save` was given, if there is a state to continue; the caller loads the weights
            that it holds. None for a training that begins.

        Raises:
            ValueError: The weights to start from are missing or do not fit.
        """
        resumable = self._ranks.is_rank_zero and state.is_resumable(
            self._path, self._run.model_info, self._facts, self._options.epochs
        )
        resumes, module = self._ranks.broadcast(resumable), self._task.module
        initialize_weights(module, self._options, self._run.model_info, fresh=not resumes)
        self._ranks.broadcast_tensors(module.state_dict().values())
        module.to(self._ranks.device)
        if not resumes:
            return None
        saved = state.load_state(self._path, self._run.model_info)
        self.progress = Progress(**saved["progress"])
        if not self._ranks.is_rank_zero:
            self.progress.best_weights = {}
        return saved

    def run(self, train_epoch: Callable[[], None]) -> None:
        """Train until all epochs are done or patience is at an end.

        Args:
            train_epoch: Trains one epoch or a few, and ends them by `end_epoch`.
        """
        if self._ranks.is_rank_zero:
            history.write_history(self._run.history, self.progress.history)
        while not self._is_over():
            self._ranks.report(f"epoch {self.progress.epoch + 1}")
            train_epoch()

    def end_epoch(
        self,
        record: Record,
        module: nn.Module,
        rate: LearningRate,
        capture_state: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Count an epoch, remember weights that are the best, save, and tell observers.

        Args:
            record: Its line.
            module: The weights that were validated.
            rate: Goes on to the next epoch.
            capture_state: Returns what `save` takes, after the epoch has been counted.
        """
        progress = self.progress
        loss = (record["val"] or record["train"])["loss"]
        progress.epoch, progress.step = record["epoch"], 0
        progress.history.append(record)
        if loss < progress.best_loss:
            progress.best_loss, progress.best_epoch = loss, record["epoch"]
            if self._ranks.is_rank_zero:
                weights = module.state_dict()
                progress.best_weights = {n: t.to("cpu", copy=True) for n, t in weights.items()}
        rate.step(loss)
        if self._ranks.is_rank_zero:
            history.append_record(self._run.history, record)
        self.save(capture_state())
        if self._ranks.is_rank_zero:
            hook = self._run.registry.select_hook("epoch", self._run.model_info.name)
            hook(run=self._run, record=record)

    def save(self, content: Mapping[str, Any]) -> None:
        """Save a state from rank 0: progress, and what the caller needs to continue."""
        if self._ranks.is_rank_zero:
            parts = {"facts": self._facts, "progress": vars(self.progress), **content}
            with self._ranks.announce(f"the state after epoch {self.progress.epoch}"):
                state.save_state(self._path, self._run.model_info, parts)

    def write_model(self, split: str, probe: Numbers) -> None:
        """Write the best model from rank 0, with its predictions of some samples of a split."""
        if self._ranks.is_rank_zero:
            provenance = state.describe_model(self._run, self._options, self._ranks)
            # Without an epoch the module is as it started.
            weights = self.progress.best_weights or self._task.module.state_dict()
            write_model(self._run, self._task, weights, (split, probe), provenance)

    def summarize(self) -> dict[str, Any]:
        """Return what was done: epochs, best epoch and its loss, parameters, ranks, device."""
        return {
            "epochs": self.progress.epoch,
            "best_epoch": self.progress.best_epoch,
            "best_loss": self.progress.best_loss if self.progress.best_epoch else None,
            "parameters": sum(p.numel() for p in self._task.module.parameters()),
            "ranks": self._ranks.size,
            "device": self._ranks.device.type,
        }

    def refuse_divergence(self, record: Record, n_infinite: int, n_steps: int) -> None:
        """Stop a training whose losses or gradients are not finite.

        Args:
            record: Line of the epoch.
            n_infinite: Steps whose gradient was not finite, but for those that may be so.
            n_steps: Steps that were looked at.

        Raises:
            ValueError: It diverges.
        """
        losses = [record[split]["loss"] for split in ("train", "val") if record[split]]
        if n_infinite or not all(map(math.isfinite, losses)):
            raise ValueError(
                f"{self._run.experiment}: the training diverged by epoch {record['epoch']}: losses "
                f"{losses}, {n_infinite} of {n_steps} gradients not finite; lower "
                "train.optimizer.lr, set train.clip_norm, or look for wrong labels"
            )

    def _is_over(self) -> bool:
        progress, patience = self.progress, self._options.patience
        waited = progress.epoch - progress.best_epoch
        return progress.epoch >= self._options.epochs or (patience or math.inf) <= waited
