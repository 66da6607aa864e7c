"""Bookkeeping of a training with steps of any kind: progress, early stopping and files.

All ranks take the same decisions (best epoch, early stopping), from numbers that were all-reduced.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, NoReturn

from torch import nn

from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.project.run import Run
from pipeline_core.status.pace import Pace, Position
from pipeline_core.task import Task
from pipeline_core.training import checkpoint, history
from pipeline_core.training.balance.sampler import Numbers
from pipeline_core.training.budget import Budget
from pipeline_core.training.card import make_card
from pipeline_core.training.checkpoint import Progress
from pipeline_core.training.divergence import DivergedError, Divergence, write_note
from pipeline_core.training.history import Record
from pipeline_core.training.model_file import make_probe, name_dtype, predict_probe, save_model
from pipeline_core.training.optimizers import LearningRate
from pipeline_core.training.start import initialize_weights
from pipeline_core.training.trained_model import BEST

logger = logging.getLogger(__name__)

_NOTIFY_EVERY: Final = 2.0
"""Seconds between notifications of observers within an epoch."""


class Session:
    """A training on one of its ranks: started or resumed, recorded, saved, ended.

    Args:
        run: The run.
        task: Freshly built, its module on the CPU.
        options: The section of the run.
        ranks: Ranks that train.
        sharing: Facts that the result depends on besides data and options: name -> value as text;
            needed on rank 0 alone.

    Attributes:
        progress: Progress of the training.
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
        self._begun: dict[str, Any] = {}
        if ranks.is_rank_zero:
            self._begun = run.make_provenance("train")
            self._facts = checkpoint.resume_key(run, options) | dict(sharing or {})
        self.progress = Progress()
        self._saved_at: tuple[int, int] | None = None  # epochs and steps of the state on disk
        self._cpu_copy, self._probe = task.module, dict[str, Any]()
        self._card: dict[str, Any] | None = None
        self._pace, self._steps, self._last_notified = Pace(), 0, 0.0
        seconds = None if options.minutes is None else 60 * options.minutes
        self._budget = Budget(seconds, ranks)

    @property
    def _note(self) -> Path:
        return self._run.state / checkpoint.NOTE

    @property
    def _path(self) -> Path:
        return self._run.state / "last.pt"

    @property
    def _best(self) -> Path:
        return self._run.folder / BEST

    @property
    def is_untouched(self) -> bool:
        """True for a fine-tuning before its first step."""
        begins = self._options.start_from is not None and self._options.epochs > 0
        taken = self.progress.epoch or self.progress.step or self.progress.history
        return begins and not taken and not self._run.is_finished

    def note_start(self, record: Record) -> None:
        """Put the errors of the initial weights at the start of the history."""
        self.progress.history.append(record)

    def start(self) -> dict[str, Any] | None:
        """Set the initial weights, the same on all ranks, and move the module to their device.

        Returns:
            The content of the saved state, if there is one to continue; the caller loads its
            weights. None for a new training.

        Raises:
            ValueError: The weights to start from are missing or do not fit, or the training is to
                be finished and its state belongs to another one.
        """
        self._require_one_run()
        found = self._find_state() if self._ranks.is_rank_zero else None
        changes, module = self._ranks.broadcast(found), self._task.module
        resumes = changes is not None
        initialize_weights(module, self._options, self._run.model_info, fresh=not resumes)
        self._ranks.broadcast_tensors(module.state_dict().values())
        if self._ranks.is_rank_zero:
            self._cpu_copy = deepcopy(module)  # on the CPU, for stored predictions
        module.to(self._ranks.device)
        if not resumes:
            return None
        saved = checkpoint.load_state(self._path, self._run.model_info)
        self._saved_at = (saved["progress"]["epoch"], saved["progress"]["step"])
        self.progress = Progress(**saved["progress"])
        if changes:
            self.progress.changes.append({"epoch": self.progress.epoch + 1, **changes})
        if not self._ranks.is_rank_zero:
            self.progress.best_weights = {}
        return saved

    def _require_one_run(self) -> None:
        """Check that all ranks train the same: a file may change while they start."""
        if self._ranks.size > 1:
            facts = checkpoint.resume_key(self._run, self._options)
            self._ranks.require_same(facts, "let all ranks see the same files, and start again")

    def _find_state(self) -> dict[str, list[str]] | None:
        """Return the changes since the state to be continued; None without a state."""
        if not self._path.exists():
            return None
        found = checkpoint.compare_state(
            self._path, self._run.model_info, self._facts, self._options.epochs, self._task.module
        )
        if self._run.is_finished and (found.obstacle or found.changes):
            changed = f"{self._path}: saved with another {', '.join(found.changes)}"
            raise ValueError(
                f"{found.obstacle or changed}; it can be finished only without a change"
            )
        if found.obstacle is not None:
            logger.warning("%s; training starts afresh", found.obstacle)
            return None
        for name, (before, now) in found.changes.items():
            logger.warning(
                "%s: the training goes on after its divergence with %s %s instead of %s",
                *(self._path, name, now, before),
            )
        return {name: list(values) for name, values in found.changes.items()}

    def run(
        self,
        train_epoch: Callable[[], None],
        split: str,
        probe: Numbers,
        rest: float = 0.0,
    ) -> None:
        """Train until the last epoch, the time limit or early stopping; write the best model.

        Early stopping: no better loss for `train.patience` epochs. During the training the best
        model so far is in the folder of states; if the training fails, it becomes the model. A
        training that is only to be finished takes no step.

        Args:
            train_epoch: Trains one epoch or a few, and ends them by `end_epoch`.
            split: Split of the samples for stored predictions.
            probe: Their numbers.
            rest: Time of an epoch besides its steps over the time of the steps, assumed until it
                is measured.

        Raises:
            ValueError: The training is to be finished before an epoch has ended.
        """
        if self._run.is_finished and not self.progress.best_epoch:
            raise ValueError(
                f"{self._run.state}: no epoch of this training has ended, so there is no model yet"
            )
        self._pace = Pace(self.progress.elapsed, rest)
        self._budget.read(self._locate(), self.progress.history)
        if self._ranks.is_rank_zero:
            history.write_history(self._run.history, self.progress.history)
            self._probe = make_probe(self._task, split, probe)
            self._provide_best()
        self._notify_progress()
        if self.progress.history and not (self.progress.epoch or self.progress.step):
            self._notify_epoch(self.progress.history[0])
        try:
            while not (self._is_over() or self._run.is_finished):
                self._ranks.report(f"epoch {self.progress.epoch + 1}")
                train_epoch()
        except Exception as error:
            if self._ranks.is_rank_zero and self.progress.best_epoch:
                self._keep_best()
            if isinstance(error, DivergedError):
                self._ranks.barrier()  # a rank that ends would end rank 0, which still writes
            raise
        if self._ranks.is_rank_zero:
            self._write_model(self._run.model, is_over=self._is_over())
            self._best.unlink(missing_ok=True)

    def _keep_best(self) -> None:
        """Write the best model of a training that has failed."""
        try:
            self._write_model(self._run.model, is_over=self._is_over())
        except Exception as error:  # noqa: BLE001 - the error that ended the training counts
            logger.warning("the best model so far could not be written: %s", error)
            return
        logger.warning(
            "%s: the best model so far, of epoch %d", self._run.model, self.progress.best_epoch
        )

    def advance(self, steps: int, n_samples: int, loss: float | None) -> None:
        """Count a step; notify observers now and then.

        Args:
            steps: Number of steps of the running epoch.
            n_samples: Samples of the step, over all ranks.
            loss: Loss of a recent step, over all ranks; None if unknown.
        """
        self._pace.count_step(n_samples)
        self._steps = steps
        if time.monotonic() - self._last_notified >= _NOTIFY_EVERY:
            self._notify_progress(loss)

    def _notify_progress(self, loss: float | None = None) -> None:
        """Notify observers of the position of the training."""
        self._last_notified = time.monotonic()
        if self._ranks.is_rank_zero:
            hook = self._run.registry.select_hook("progress", self._run.model_info.name)
            hook(run=self._run, position=self._locate(loss))

    def _locate(self, loss: float | None = None) -> Position:
        """Return the position of the training."""
        progress = self.progress
        last = progress.history[-1] if progress.history else {}
        train, val = ((last.get(split) or {}).get("loss") for split in ("train", "val"))
        losses = (train if loss is None else loss, val)
        done, of = (progress.epoch, progress.step), (self._options.planned_epochs, self._steps)
        return self._pace.locate(done, of, losses, self._budget.seconds)

    def end_epoch(
        self,
        record: Record,
        module: nn.Module,
        rate: LearningRate,
        capture_state: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Count an epoch, keep its weights if they are the best, save, and notify observers.

        Args:
            record: Its line.
            module: The weights that were validated.
            rate: Learning-rate schedule, advanced to the next epoch.
            capture_state: Returns the content for `save`, after the epoch has been counted.
        """
        progress = self.progress
        loss = (record["val"] or record["train"])["loss"]
        is_best = loss < progress.best_loss
        self._pace.count_epochs(record["epoch"] - progress.epoch)
        record = {**record, "elapsed": round(self._pace.elapsed, 3)}
        progress.epoch, progress.step = record["epoch"], 0
        if progress.changes and progress.changes[-1]["epoch"] == record["epoch"]:
            record = {**record, "changes": progress.changes[-1]}
        progress.history.append(record)
        if is_best:
            progress.best_loss, progress.best_epoch = loss, record["epoch"]
            if self._ranks.is_rank_zero:
                weights = module.state_dict()
                progress.best_weights = {n: t.to("cpu", copy=True) for n, t in weights.items()}
        self._budget.read(self._locate(), progress.history)
        rate.share = self._budget.share
        rate.step(loss)
        if self._ranks.is_rank_zero:
            history.append_record(self._run.history, record)
        self.save(capture_state())
        if is_best and self._ranks.is_rank_zero:
            with self._ranks.announce(f"the best model so far, of epoch {progress.epoch}"):
                self._write_model(self._best, is_over=False)
        self._notify_progress()
        self._notify_epoch(record)

    def _notify_epoch(self, record: Record) -> None:
        """Notify observers of the line of an epoch."""
        if self._ranks.is_rank_zero:
            hook = self._run.registry.select_hook("epoch", self._run.model_info.name)
            hook(run=self._run, record=record)

    def save(self, content: Mapping[str, Any]) -> None:
        """Save a checkpoint from rank 0: progress, and the content of the caller.

        Args:
            content: All else needed to resume, with the weights in `learner`; they are saved with
                predictions to check them by.
        """
        self.progress.elapsed = self._pace.elapsed
        if self._ranks.is_rank_zero:
            self._cpu_copy.load_state_dict(content["learner"]["module"])
            parts = {
                "facts": self._facts,
                "progress": vars(self.progress),
                "dtype": name_dtype(self._cpu_copy),
                "probe": predict_probe(self._cpu_copy, self._probe),
                **content,
            }
            with self._ranks.announce(f"the state after epoch {self.progress.epoch}"):
                checkpoint.save_state(self._path, self._run.model_info, parts)
            self._note.unlink(missing_ok=True)
        self._saved_at = (self.progress.epoch, self.progress.step)

    def _provide_best(self) -> None:
        """Write the best model so far for the time of the training, and remove any other."""
        if not self.progress.best_epoch:
            self._best.unlink(missing_ok=True)
            return
        continues = not (self._is_over() or self._run.is_finished)
        if continues and not (self._run.model.exists() or self._best.exists()):
            self._write_model(self._best, is_over=False)

    def _write_model(self, path: Path, *, is_over: bool) -> None:
        """Write the best weights so far as a model, on rank 0."""
        if self._card is None:  # reads all samples
            self._card = make_card(self._run, self._task)
        # Without an epoch the module is as it started.
        self._cpu_copy.load_state_dict(self.progress.best_weights or self._task.module.state_dict())
        facts = checkpoint.describe_model(self._run, self._begun, self._ranks, self.progress)
        if not is_over:
            planned = self._options.planned_epochs
            of = "" if planned is None else f" of {planned}"
            facts["unfinished"] = f"epoch {self.progress.epoch}{of}"
        facts["card"] = self._card
        run, metadata = self._run, self._task.metadata or {}
        trained = self._cpu_copy, metadata, self._probe
        save_model(path, run.model_info, (run.experiment, run.variant), trained, facts)

    def summarize(self) -> dict[str, Any]:
        """Return epochs, best epoch and its loss, parameters, ranks and device.

        Where some parameters are frozen, their number, too.
        """
        parameters = list(self._task.module.parameters())
        frozen = sum(p.numel() for p in parameters if not p.requires_grad)
        return {
            "epochs": self.progress.epoch,
            "best_epoch": self.progress.best_epoch,
            "best_loss": self.progress.best_loss if self.progress.best_epoch else None,
            "parameters": sum(p.numel() for p in parameters),
            **({"frozen": frozen} if frozen else {}),
            "ranks": self._ranks.size,
            "device": self._ranks.device.type,
        }

    def refuse(self, divergence: Divergence) -> NoReturn:
        """Stop a training whose losses or gradients are not finite; all ranks call it.

        Raises:
            DivergedError: Always; it names the cure.
        """
        if self._ranks.is_rank_zero:
            write_note(self._note, divergence, self._saved_at)
        words = divergence.explain(self._options, self._note) + self.describe_kept()
        raise DivergedError(f"{self._run.experiment}: {'; '.join(words)}")

    def describe_kept(self) -> list[str]:
        """Return the files that a training leaves if it fails now, as parts of a sentence."""
        saved, progress, words = self._saved_at, self.progress, []
        if saved is not None:
            epoch, step = saved
            place = f"step {step} of epoch {epoch + 1}" if step else f"epoch {epoch}"
            words.append(f"the next call then continues after {place}")
        if progress.best_epoch:
            words += [
                f"{self._run.model} is the best model so far, of epoch {progress.best_epoch}",
                f"where Snakemake has removed it, `{self._run.name_command('train')} --finish` "
                "brings it back",
            ]
        return words

    def _is_over(self) -> bool:
        progress, patience = self.progress, self._options.patience
        if progress.epoch >= self._options.epochs or self._budget.is_spent:
            return True
        return (patience or math.inf) <= progress.epoch - progress.best_epoch
