"""The shared trainer: epochs of optimizer steps, and their validation.

`learner` computes the steps, `division` gives each rank its share, `loader` prefetches batches,
`session` keeps records, checkpoints and the best model.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch

from pipeline_core.batch import Batch
from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.distributed.threads import limit_numpy_threads
from pipeline_core.project.run import Run
from pipeline_core.system.memory import find_peak_memory
from pipeline_core.system.seeds import (
    capture_generators,
    seed_everything,
    set_generator_states,
    use_deterministic,
)
from pipeline_core.task import Outputs, Task, build_task
from pipeline_core.training.balance.cost_model import CostModel
from pipeline_core.training.checkpoint import explain_misfit
from pipeline_core.training.divergence import Divergence, StepWatch, list_some, name_samples
from pipeline_core.training.division import Division, make_division
from pipeline_core.training.history import EpochTotals, make_record, make_start_record
from pipeline_core.training.learner import Learner
from pipeline_core.training.loader import load_pieces, load_steps
from pipeline_core.training.out_of_memory import SMALLER, report_out_of_memory
from pipeline_core.training.profile import EpochTimes, StepClock
from pipeline_core.training.session import Session
from pipeline_core.training.start import start_metadata
from pipeline_core.training.start_errors import StartErrors
from pipeline_core.training.validation import validate
from pipeline_kernels.packing import Plan

logger = logging.getLogger(__name__)

_PROBE_SAMPLES: Final = 4
_VALIDATION: Final = 1 / 3
"""Time to validate a sample over the time to train on it: there is no backward pass, which takes
twice as long as the forward pass."""
_LOOK_EVERY: Final = 50
"""Steps between checks for non-finite numbers, which wait for the device."""


def train_run(run: Run) -> dict[str, Any]:
    """Train the model of a run, on the present ranks and the device of the run.

    Returns:
        Epochs, best epoch and its loss, parameters, ranks, device, and the peak memory of each
        rank (of its tensors on a GPU).

    Raises:
        ValueError: There is nothing to train or to train on, files do not fit together, or the
            training diverges.
    """
    options = run.get_section("train", TrainOptions)
    with connect_ranks(run.device, run.state) as ranks, use_deterministic(options.deterministic):
        with report_out_of_memory(lambda: f"for the model of {run.experiment}: {SMALLER}"):
            task = build_task(run, start_metadata(run))
        seed_everything(run.seed, 1 + ranks.rank)  # from now on each rank draws its own numbers
        division = make_division(run, task, options, ranks)
        trainer = Trainer(run, task, options, ranks, division)
        with limit_numpy_threads():
            return trainer.fit()


class Trainer:
    """A training on one of its ranks.

    Args:
        run: The run.
        task: Freshly built, its module on the CPU.
        options: The section of the run.
        ranks: Ranks that train.
        division: Division of the work among them.

    Raises:
        ValueError: Nothing is trained.
    """

    def __init__(
        self, run: Run, task: Task, options: TrainOptions, ranks: Ranks, division: Division
    ) -> None:
        self._task, self._options, self._ranks, self._division = task, options, ranks, division
        if not any(task.objective.weights.values()):
            raise ValueError(
                f"{run.experiment}: train.loss gives no field a weight above zero, so nothing is "
                "trained"
            )
        sharing = division.describe_sharing() if ranks.is_rank_zero else None
        self._session = Session(run, task, options, ranks, sharing)
        self._totals = EpochTotals.zero(len(task.objective.weights), ranks.device)
        self._times = EpochTimes.zero(0, ranks.size)
        self._cost_model: CostModel | None = None
        fitted = division.shares.cost == "fitted"
        self._clock = StepClock(ranks, runs=options.profile or fitted, synchronizes=options.profile)
        self._is_warm = False
        self._watch = StepWatch(ranks, scaled=options.precision == "16-mixed")
        self._run = run
        with report_out_of_memory(lambda: f"for the model of {run.experiment}: {SMALLER}"):
            self._learner = self._make_learner()

    def fit(self) -> dict[str, Any]:
        """Train to the end; write the history and, on rank 0, the best model."""
        val, train = self._division.val_costs, self._division.shares.costs
        split, costs = ("val", val) if len(val) else ("train", train)
        probe = np.argsort(costs, kind="stable")[:_PROBE_SAMPLES]
        rest = _VALIDATION * float(val.sum() / (train.sum() or 1.0))
        if self._session.is_untouched and len(val):
            self._report_start()
        self._session.run(self._train_epoch, split, probe, rest)
        return {**self._session.summarize(), "memory_gb": self._ranks.gather(self._find_peak())}

    def _report_start(self) -> None:
        """Log warnings from zero-shot errors of the initial weights, before the first step."""
        errors, place = StartErrors(self._task.quantities, self._ranks), "before the first step"
        with report_out_of_memory(lambda: self._describe_validation(place)):
            validation = self._validate(place, errors.add)
        start = f"{self._run.experiment}: {self._options.start_from}"
        losses = (validation["val"] or {}).values()
        if not all(math.isfinite(loss) for loss in losses if loss is not None):
            words = ["its losses on the validation split are not finite: check these samples"]
        else:
            self._session.note_start(make_start_record(validation))
            words = [*self._task.explain_start(errors.reduce())]
        for word in words if self._ranks.is_rank_zero else ():
            logger.warning("%s: %s", start, word)

    def _find_peak(self) -> float | None:
        """Return the peak memory of this rank, GB."""
        device = self._ranks.device
        on_gpu = device.type == "cuda"
        peak = torch.cuda.max_memory_allocated(device) if on_gpu else find_peak_memory()
        return None if peak is None else peak / 1e9

    def _make_learner(self) -> Learner:
        saved = self._session.start()
        # Ranks can be timed separately only if gradients are added after the last pass.
        overlap = self._division.are_passes_local and not self._options.profile
        learner = Learner(self._task, self._options, self._ranks, self._clock, overlap=overlap)
        if saved is not None:
            with explain_misfit(self._run.state / "last.pt"):
                self._load(learner, saved)
        return learner

    def _train_epoch(self) -> None:
        epoch, learner = self._session.progress.epoch, self._learner
        plan = self._division.plan_epoch(epoch)
        with report_out_of_memory(lambda: self._describe_pass(plan)):
            self._take_steps(plan)
        self._add_over()
        self._balance_by(self._fit_cost_model(plan))
        weights, rate = self._task.objective.weights, learner.rate
        place = f"of epoch {epoch + 1}"
        with report_out_of_memory(lambda: self._describe_validation(place)):
            totals, validation = self._totals, self._validate(place)
        record = make_record(
            epoch + 1, rate.value, weights, totals, validation, self._report_times()
        )
        losses = [record[split]["loss"] for split in ("train", "val") if record[split]]
        self._refuse_divergence(plan, f"losses {', '.join(map(str, losses))}", losses)
        self._totals = EpochTotals.zero(len(weights), self._ranks.device)
        self._session.end_epoch(record, learner.evaluated, rate, self._state)

    def _take_steps(self, plan: Plan) -> None:
        progress, every = self._session.progress, self._options.checkpoint_steps
        steps = load_steps(
            plan,
            self._division.share,
            self._division.load_training(progress.epoch),
            self._task.objective,
            self._ranks.device,
            progress.step,
        )
        if not (progress.step and self._times.matches(plan)):
            self._times = EpochTimes.zero(len(plan), plan.n_ranks)
        self._learner.train()
        self._clock.start()
        begin = time.perf_counter()
        for step in steps:
            self._ranks.report(f"step {progress.step + 1} of epoch {progress.epoch + 1}")
            self._watch.add(*self._learner.step(step, self._totals))
            self._times.add(progress.step, self._ranks.rank, self._clock, warm=self._is_warm)
            self._is_warm = True
            progress.step += 1
            seen = self._watch.before
            loss = None if seen is None else seen.loss
            self._session.advance(len(plan), step.n_samples, loss)
            if progress.step % _LOOK_EVERY == 0:
                self._look_at_steps(plan)
            if every and progress.step % every == 0 and progress.step < len(plan):
                begin = self._stop_clock(begin)
                self._refuse_divergence(plan, "weights")
                self._save_within()
        self._stop_clock(begin)

    def _save_within(self) -> None:
        """Save a state within an epoch."""
        self._add_over()
        self._session.save(self._state())
        self._totals.keep_on_rank_zero(self._ranks)
        self._times.keep_on_rank_zero(self._ranks)
        self._clock.start()

    def _add_over(self) -> None:
        """All-reduce the totals and times of ranks."""
        self._totals.all_reduce_sum(self._ranks)
        if self._clock.runs:
            self._times.all_reduce_sum(self._ranks)

    def _fit_cost_model(self, plan: Plan) -> CostModel | None:
        """Return the cost model to share the next epoch by; None for the given costs."""
        shares = self._division.shares
        if shares.cost == "given":
            return None
        fit = self._times.fit_cost_model(plan, shares.sizes) if self._ranks.is_rank_zero else None
        return self._ranks.broadcast(fit) or self._cost_model

    def _balance_by(self, model: CostModel | None) -> None:
        self._cost_model = model
        self._division.balance_by(model)

    def _report_times(self) -> dict[str, Any]:
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

    def _validate(
        self, place: str, look: Callable[[Outputs, Batch], None] | None = None
    ) -> dict[str, Any]:
        if not len(self._division.val_costs):
            return {}
        learner, ranks = self._learner, self._ranks
        pieces = load_pieces(*self._division.plan_validation(), ranks.device)
        with ranks.announce(f"validation {place}"):
            return validate(self._task, learner.evaluated, pieces, ranks, learner.precision, look)

    def _refuse_divergence(self, plan: Plan, what: str, losses: Sequence[float] = ()) -> None:
        """Stop before a non-finite state would be saved."""
        self._look_at_steps(plan)
        if not (all(map(math.isfinite, losses)) and self._learner.is_finite()):
            self._session.refuse(Divergence(self._session.progress.epoch + 1, what))

    def _describe_pass(self, plan: Plan) -> str:
        """Describe the work of this rank in the running step, and the ways to save memory."""
        progress, costs = self._session.progress, self._division.shares.costs
        share = self._division.share(plan.step(min(progress.step, len(plan) - 1)))
        passes = share.micro_batches or [np.zeros(0, np.int64)]
        largest = max(passes, key=lambda numbers: float(costs[numbers].sum()))
        cost = float(costs[largest].sum())
        names = name_samples(self._run, len(costs), largest)
        cure = (
            f"set partition.capacity below {cost:g}, so that a step takes more micro-batches, with "
            "the same result, or lower train.batch_size"
            if len(largest) > 1
            else "a single sample is too large: choose a smaller model, or partition.parts: graph "
            "on several ranks, or on more than now"
        )
        place = f"in step {progress.step + 1} of epoch {progress.epoch + 1}"
        held = f"whose largest micro-batch holds {list_some(names)}, of cost {cost:g}"
        words = [f"{place} on rank {self._ranks.rank}, {held}", cure]
        return "; ".join([*words, *self._session.describe_kept()])

    def _describe_validation(self, place: str) -> str:
        words = [
            f"in the validation {place} on rank {self._ranks.rank}",
            "set partition.capacity to less than the cost of an evaluation batch",
        ]
        return "; ".join([*words, *self._session.describe_kept()])

    def _look_at_steps(self, plan: Plan) -> None:
        found = self._watch.look()
        if found is None:
            return
        progress, (ago, seen) = self._session.progress, found
        step = progress.step - ago
        numbers = np.sort(plan.step(step).items)
        samples = name_samples(self._run, len(self._division.shares.costs), numbers)
        self._session.refuse(
            Divergence(progress.epoch + 1, str(seen), step + 1, self._watch.before, samples)
        )

    def _state(self) -> dict[str, Any]:
        """Return the content of a checkpoint, without progress; all ranks call it."""
        return {
            "learner": self._learner.state_dict(),
            "totals": vars(self._totals),
            "times": vars(self._times),
            "cost_model": self._cost_model and self._cost_model.coefficients,
            "generators": self._ranks.gather(capture_generators(self._ranks.device)),
        }

    def _load(self, learner: Learner, saved: dict[str, Any]) -> None:
        ranks = self._ranks
        learner.load_state_dict(saved["learner"])
        self._totals = EpochTotals(**saved["totals"])
        self._totals.to(ranks.device)
        self._totals.keep_on_rank_zero(ranks)
        self._times = EpochTimes(**saved["times"])
        self._times.keep_on_rank_zero(ranks)
        coefficients = saved.get("cost_model")
        # Within an epoch the cost model of its first steps stays, whatever the experiment has now.
        if coefficients and (self._session.progress.step or self._division.shares.cost == "fitted"):
            self._balance_by(CostModel.of(coefficients))
        if len(saved["generators"]) == ranks.size:  # else they have none to continue
            set_generator_states(saved["generators"][ranks.rank], ranks.device)
