"""The shared trainer: epochs of optimizer steps over shared samples, and their validation.

`learner` does the steps, `sampler` and `loader` feed it, `session` keeps records, states and the
best model.
"""

from __future__ import annotations

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
from pipeline_core.seeds import (
    determinism,
    generator_states,
    seed_everything,
    set_generator_states,
)
from pipeline_core.task import DrawnSamples, Task, build_task
from pipeline_core.training.history import EpochTotals, Record, epoch_record
from pipeline_core.training.learner import Learner
from pipeline_core.training.loader import epoch_steps
from pipeline_core.training.profile import EpochTimes, StepClock
from pipeline_core.training.session import Session
from pipeline_core.training.start import start_metadata
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
        task = build_task(run, start_metadata(options, run.model_info))
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
        sharing = self._sampler.facts(ranks.size) if ranks.is_rank_zero else None
        self._session = Session(run, task, options, ranks, sharing)
        self._totals = EpochTotals.zero(len(task.objective.weights), ranks.device)
        self._times = EpochTimes.zero(0, ranks.size)
        self._cost_model: CostModel | None = None
        fitted = shares.cost == "fitted"
        self._clock = StepClock(ranks, runs=options.profile or fitted, meets=options.profile)
        self._is_warm = False
        self._learner = self._make_learner()

    def fit(self) -> dict[str, Any]:
        """Train to the end; write the history and, on rank 0, the best model."""
        self._session.run(self._epoch)
        split, costs = ("val", self._val_shares.costs)
        if not len(self._val):
            split, costs = "train", self._sampler.costs
        self._session.write_model(split, np.argsort(costs, kind="stable")[:_PROBE_SAMPLES])
        return self._session.summarize()

    def _make_learner(self) -> Learner:
        saved = self._session.start()
        learner = Learner(self._task, self._options, self._ranks, self._clock)
        if saved is not None:
            self._load(learner, saved)
        return learner

    def _epoch(self) -> None:
        epoch, learner = self._session.progress.epoch, self._learner
        plan = self._sampler.plan(epoch, self._ranks.size)
        self._steps(plan)
        self._add_over()
        self._share_by(self._fitted(plan))
        weights, rate = self._task.objective.weights, learner.rate
        totals, validation = self._totals, self._validate()
        record = epoch_record(epoch + 1, rate.value, weights, totals, validation, self._timing())
        self._refuse_divergence(record)
        self._totals = EpochTotals.zero(len(weights), self._ranks.device)
        self._session.end_epoch(record, learner.evaluated, rate, self._state)

    def _steps(self, plan: Plan) -> None:
        progress, every = self._session.progress, self._options.checkpoint_steps
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
        self._session.save(self._state())
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
        n_steps = self._totals.steps
        # The scale of a loss in float16 is found by overflow.
        scaled = self._options.precision == "16-mixed"
        n_infinite = 0 if scaled else n_steps - int(self._totals.norms[1])
        self._session.refuse_divergence(record, n_infinite, n_steps)

    def _state(self) -> dict[str, Any]:
        """Return what continues the training besides its progress; called on all ranks alike."""
        return {
            "learner": self._learner.state_dict(),
            "totals": vars(self._totals),
            "times": vars(self._times),
            "cost_model": self._cost_model and self._cost_model.coefficients,
            "generators": self._ranks.gather(generator_states(self._ranks.device)),
        }

    def _load(self, learner: Learner, saved: dict[str, Any]) -> None:
        ranks = self._ranks
        learner.load_state_dict(saved["learner"])
        self._totals = EpochTotals(**saved["totals"])
        self._totals.to(ranks.device)
        self._totals.keep_on_rank_zero(ranks)
        if "times" in saved:  # earlier versions saved none
            self._times = EpochTimes(**saved["times"])
            self._times.keep_on_rank_zero(ranks)
        coefficients = saved.get("cost_model")
        # Within an epoch the shares of its first steps go on, whatever the experiment says now.
        if coefficients and (self._session.progress.step or self._shares.cost == "fitted"):
            self._share_by(CostModel.of(coefficients))
        if len(saved["generators"]) == ranks.size:  # else they have none to continue
            set_generator_states(saved["generators"][ranks.rank], ranks.device)
