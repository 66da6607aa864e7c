"""The shared trainer: epochs, validation, saved states, the best model.

`learner` does the steps, `sampler` and `loader` feed it. Every decision (best epoch, learning rate,
end) is taken by all ranks alike, from numbers that have been added over ranks.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch

from pipeline_core.balance.cost_model import CostModel
from pipeline_core.balance.partitioning import read_shares
from pipeline_core.balance.sampler import Sampler
from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.distributed.threads import limit_numpy_threads
from pipeline_core.run import Run
from pipeline_core.task import DrawnSamples, Task
from pipeline_core.training import history, state
from pipeline_core.training.checkpoint import write_model
from pipeline_core.training.history import EpochTotals, Progress, Record
from pipeline_core.training.learner import Learner
from pipeline_core.training.loader import epoch_steps
from pipeline_core.training.profile import EpochTimes, StepClock
from pipeline_core.training.seeds import (
    determinism,
    generator_states,
    seed_everything,
    set_generator_states,
)
from pipeline_core.training.start import initialize_weights, start_metadata
from pipeline_core.training.tasks import build_task
from pipeline_core.training.validation import validate
from pipeline_kernels.packing import Plan

_PROBE_SAMPLES: Final = 4


def train_run(run: Run) -> dict[str, Any]:
    """Train the model of a run, on the ranks that it is started on and the device it asks for.

    Returns:
        What was done: epochs, best epoch and its loss, parameters, ranks, device.

    Raises:
        ValueError: There is nothing to train or to train on, files do not fit together, or the
            training diverges.
    """
    options = run.section("train", TrainOptions)
    with connect_ranks(run.device, run.state) as ranks, determinism(options.deterministic):
        task = build_task(run, start_metadata(options))
        seed_everything(run.seed, 1 + ranks.rank)  # from now on each rank draws its own numbers
        trainer = Trainer(run, task, options, ranks)
        with limit_numpy_threads():
            return trainer.fit()


class Trainer:
    """One training, as one of its ranks sees it.

    Args:
        run: The run.
        task: Freshly built, its module on the CPU.
        options: The section of the run.
        ranks: Who trains.

    Raises:
        ValueError: There is nothing to train on, or files do not fit together.
    """

    def __init__(self, run: Run, task: Task, options: TrainOptions, ranks: Ranks) -> None:
        self._run, self._task, self._options, self._ranks = run, task, options, ranks
        self._train, self._val = task.samples("train"), task.samples("val")
        if not len(self._train):
            raise ValueError(f"{run.experiment}: the split 'train' of its dataset is empty")
        if not task.objective.weights:
            raise ValueError(f"{run.experiment}: train.loss names no field, so nothing is trained")
        shares = read_shares(run.partition, "train", len(self._train))
        self._shares = shares
        self._sampler = Sampler(
            costs=shares.costs,
            batch_size=options.batch_size,
            batch_by=options.batch_by,
            capacity=shares.capacity,
            seed=run.seed,
            strategy=shares.strategy,
        )
        self._val_shares = read_shares(run.partition, "val", len(self._val))
        self._facts: dict[str, str] = {}
        if ranks.is_rank_zero:
            self._facts = state.resume_key(run, options) | self._sampler.facts(ranks.size)
        self._path = run.state / "last.pt"
        self._progress = Progress()
        self._totals = EpochTotals.zero(len(task.objective.weights), ranks.device)
        self._times = EpochTimes.zero(0, ranks.size)
        self._cost_model: CostModel | None = None
        fitted = shares.cost == "fitted"
        self._clock = StepClock(ranks, runs=options.profile or fitted, meets=options.profile)
        self._is_warm = False
        self._learner = self._make_learner()

    def fit(self) -> dict[str, Any]:
        """Train to the end; write the history and, on rank 0, the best model."""
        if self._ranks.is_rank_zero:
            history.write_history(self._run.history, self._progress.history)
        while not self._is_over():
            self._epoch()
        if self._ranks.is_rank_zero:
            self._write_model()
        return {
            "epochs": self._progress.epoch,
            "best_epoch": self._progress.best_epoch,
            "best_loss": self._progress.best_loss,
            "parameters": sum(p.numel() for p in self._task.module.parameters()),
            "ranks": self._ranks.size,
            "device": self._ranks.device.type,
        }

    def _make_learner(self) -> Learner:
        resumable = self._ranks.is_rank_zero and state.is_resumable(
            self._path, self._facts, self._options.epochs
        )
        resumes, module = self._ranks.broadcast(resumable), self._task.module
        initialize_weights(module, self._options, fresh=not resumes)
        self._ranks.broadcast_tensors(module.state_dict().values())
        module.to(self._ranks.device)
        learner = Learner(self._task, self._options, self._ranks, self._clock)
        if resumes:
            self._load(learner)
        return learner

    def _is_over(self) -> bool:
        progress, patience = self._progress, self._options.patience
        waited = progress.epoch - progress.best_epoch
        return progress.epoch >= self._options.epochs or (patience or math.inf) <= waited

    def _epoch(self) -> None:
        plan = self._sampler.plan(self._progress.epoch, self._ranks.size)
        self._steps(plan)
        self._add_over()
        self._share_by(self._fitted(plan))
        record = history.epoch_record(
            self._progress.epoch + 1,
            self._learner.rate.value,
            self._task.objective.weights,
            self._totals,
            self._validate(),
            self._timing(),
        )
        self._refuse_divergence(record)
        self._advance(record)
        if self._ranks.is_rank_zero:
            history.append_record(self._run.history, record)
        self._save()
        if self._ranks.is_rank_zero:
            hook = self._run.project.registry.hook("epoch", self._run.model_info.name)
            hook(run=self._run, record=record)

    def _steps(self, plan: Plan) -> None:
        progress, every = self._progress, self._options.checkpoint_steps
        stored = self._train
        steps = epoch_steps(
            stored.of_epoch(progress.epoch) if isinstance(stored, DrawnSamples) else stored,
            self._sampler,
            self._task.objective,
            self._ranks,
            plan,
            progress.step,
        )
        if not (progress.step and self._times.fits(plan)):
            self._times = EpochTimes.zero(len(plan), plan.n_ranks)
        self._learner.train()
        self._clock.start()
        begin = time.perf_counter()
        for step in steps:
            self._learner.step(step, self._totals)
            self._times.add(progress.step, self._ranks.rank, self._clock, warm=self._is_warm)
            self._is_warm = True
            progress.step += 1
            if every and progress.step % every == 0 and progress.step < len(plan):
                begin = self._stop_clock(begin)
                self._save_within()
        self._stop_clock(begin)

    def _save_within(self) -> None:
        """Save a state while the epoch goes on."""
        self._add_over()
        self._save()
        self._totals.keep_on_rank_zero(self._ranks)
        self._times.keep_on_rank_zero(self._ranks)
        self._clock.start()

    def _add_over(self) -> None:
        """Bring together what each rank has counted by itself."""
        self._totals.all_reduce_sum(self._ranks)
        if self._clock.runs:
            self._times.all_reduce_sum(self._ranks)

    def _fitted(self, plan: Plan) -> CostModel | None:
        """Return what the next epoch is to be shared by; None for the given costs."""
        if self._shares.cost == "given":
            return None
        found = (
            self._times.cost_model(plan, self._shares.sizes) if self._ranks.is_rank_zero else None
        )
        return self._ranks.broadcast(found) or self._cost_model

    def _share_by(self, model: CostModel | None) -> None:
        times = None if model is None else model.seconds(self._shares.sizes)
        self._cost_model, self._sampler = model, replace(self._sampler, times=times)

    def _timing(self) -> dict[str, Any]:
        model = self._cost_model
        return {
            **({"profile": self._times.profile()} if self._options.profile else {}),
            **({} if model is None else {"cost_model": model.coefficients}),
        }

    def _stop_clock(self, begin: float) -> float:
        if self._ranks.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        self._totals.seconds += now - begin
        return now

    def _validate(self) -> dict[str, Any]:
        if not len(self._val):
            return {}
        bins = self._val_shares.batches(self._ranks.rank, self._ranks.size)
        learner = self._learner
        return validate(
            self._task, learner.evaluated, self._val, bins, self._ranks, learner.precision
        )

    def _refuse_divergence(self, record: Record) -> None:
        n_finite = int(self._totals.norms[1])
        scaled = self._options.precision == "16-mixed"  # its scale of the loss is found by overflow
        losses = [record[split]["loss"] for split in ("train", "val") if record[split]]
        if not all(map(math.isfinite, losses)) or (n_finite < self._totals.steps and not scaled):
            raise ValueError(
                f"{self._run.experiment}: the training diverged in epoch {record['epoch']}: losses "
                f"{losses}, {self._totals.steps - n_finite} of {self._totals.steps} gradients not "
                "finite; lower train.optimizer.lr, set train.clip_norm, or look for wrong labels"
            )

    def _advance(self, record: Record) -> None:
        """Count the epoch, remember the weights if they are the best, go on to the next rate."""
        progress = self._progress
        loss = (record["val"] or record["train"])["loss"]
        progress.epoch, progress.step = record["epoch"], 0
        progress.history.append(record)
        if loss < progress.best_loss:
            progress.best_loss, progress.best_epoch = loss, record["epoch"]
            if self._ranks.is_rank_zero:
                weights = self._learner.evaluated.state_dict()
                progress.best_weights = {n: t.to("cpu", copy=True) for n, t in weights.items()}
        self._learner.rate.step(loss)
        self._totals = EpochTotals.zero(len(self._totals.sums), self._ranks.device)

    def _save(self) -> None:
        generators = self._ranks.gather(generator_states(self._ranks.device))
        if self._ranks.is_rank_zero:
            state.save_state(
                self._path,
                {
                    "facts": self._facts,
                    "learner": self._learner.state_dict(),
                    "progress": vars(self._progress),
                    "totals": vars(self._totals),
                    "times": vars(self._times),
                    "cost_model": self._cost_model and self._cost_model.coefficients,
                    "generators": generators,
                },
            )

    def _load(self, learner: Learner) -> None:
        saved, ranks = state.load_state(self._path), self._ranks
        learner.load_state_dict(saved["learner"])
        self._progress = Progress(**saved["progress"])
        if not ranks.is_rank_zero:
            self._progress.best_weights = {}
        self._totals = EpochTotals(**saved["totals"])
        self._totals.to(ranks.device)
        self._totals.keep_on_rank_zero(ranks)
        if "times" in saved:  # earlier versions saved none
            self._times = EpochTimes(**saved["times"])
            self._times.keep_on_rank_zero(ranks)
        coefficients = saved.get("cost_model")
        # Within an epoch the shares of its first steps go on, whatever the experiment says now.
        if coefficients and (self._progress.step or self._shares.cost == "fitted"):
            self._share_by(CostModel.of(coefficients))
        if len(saved["generators"]) == ranks.size:  # else they have none to continue
            set_generator_states(saved["generators"][ranks.rank], ranks.device)

    def _write_model(self) -> None:
        split = "val" if len(self._val) else "train"
        costs = self._val_shares.costs if len(self._val) else self._sampler.costs
        write_model(
            self._run,
            self._task,
            self._progress.best_weights,
            (split, np.argsort(costs, kind="stable")[:_PROBE_SAMPLES]),
            state.model_provenance(self._run, self._options, self._ranks),
        )
