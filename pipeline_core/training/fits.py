"""Trainings without gradient steps: fits, each a line in the history, that give one model."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
from torch import Tensor

from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.project.run import Run
from pipeline_core.task import Task, build_task
from pipeline_core.training import checkpoint, history
from pipeline_core.training.balance.sampler import Numbers
from pipeline_core.training.model_file import write_model
from pipeline_core.training.out_of_memory import SMALLER, report_out_of_memory

_PROBE_SAMPLES: Final = 4

Step = Mapping[str, Any]
"""Record of one step of a fit, see `FitWriter.record`."""


def fit_run(run: Run, fit: Callable[[Task], Iterable[Step]]) -> dict[str, Any]:
    """Train the model of a run by a function that sets its weights, as a hook `train` may do.

    Rank 0 does all the work, on the CPU; others wait for it.

    Args:
        run: The run; `run.model` and `run.history` are written.
        fit: Sets the weights of `task.module`, given the task. After each step it yields the
            arguments of `FitWriter.record`.

    Returns:
        Steps, parameters, seconds.

    Raises:
        ValueError: There is nothing to train on, files do not fit together, memory does not
            suffice, or a time limit is set.
    """
    if getattr(run.sections["train"], "minutes", None) is not None:
        raise ValueError(
            f"{run.experiment}: train.minutes: plugin {run.model_info.name!r} fits without steps "
            "that time could end; remove it"
        )
    with connect_ranks("cpu", run.state) as ranks:
        summary: dict[str, Any] = {}
        if ranks.is_rank_zero:
            cure = f"in the fit of {run.experiment}: {SMALLER}"
            with ranks.announce("the fit"), report_out_of_memory(lambda: cure):
                summary = _fit(run, fit, ranks)
        return ranks.broadcast(summary)


def _fit(run: Run, fit: Callable[[Task], Iterable[Step]], ranks: Ranks) -> dict[str, Any]:
    task = build_task(run)
    n_train = len(task.samples("train"))
    if not n_train:
        raise ValueError(f"{run.experiment}: the split 'train' of its dataset is empty")
    writer = FitWriter(run, ranks)
    for step in fit(task):
        writer.record(**step)
    probe = np.arange(min(_PROBE_SAMPLES, n_train))
    writer.write_model(task, task.module.state_dict(), ("train", probe))
    return {
        "steps": writer.n_steps,
        "parameters": sum(p.numel() for p in task.module.parameters()),
        "seconds": writer.measure_elapsed(),
    }


class FitWriter:
    """Writer of history and model for a training that a plugin does itself.

    Args:
        run: The run, whose history is replaced with the first line.
        ranks: Ranks that train; only rank 0 writes.

    Attributes:
        n_steps: Lines of the history.
    """

    def __init__(self, run: Run, ranks: Ranks) -> None:
        self._run, self._ranks = run, ranks
        self._begin, self._begun = time.perf_counter(), run.make_provenance("train")
        self._recorded = 0.0
        self.n_steps = 0

    def measure_elapsed(self) -> float:
        """Return the seconds since the training began."""
        return time.perf_counter() - self._begin

    def record(self, step: str, **facts: Any) -> None:
        """Add a line to the history and notify observers.

        Args:
            step: Name of the step, in a word or two, in place of the word "epoch".
            **facts: `train` and `val`, each a mapping with the `loss`, where they apply; further
                facts to be recorded.
        """
        elapsed = self.measure_elapsed()
        times = {"seconds": elapsed - self._recorded, "elapsed": elapsed}
        self._recorded = elapsed
        record = {"epoch": self.n_steps + 1, "step": step, "mae": {}, **facts, **times}
        if self._ranks.is_rank_zero:
            self._begin_history()
            history.append_record(self._run.history, record)
            hook = self._run.registry.select_hook("epoch", self._run.model_info.name)
            hook(run=self._run, record=record)
        self.n_steps += 1

    def _begin_history(self) -> None:
        if not self.n_steps:
            history.write_history(self._run.history, [])

    def write_model(
        self, task: Task, weights: Mapping[str, Tensor], probe: tuple[str, Numbers]
    ) -> None:
        """Write `run.model`, on rank 0.

        Args:
            task: Its module is moved to the CPU and given the weights.
            weights: State of the module.
            probe: Split and numbers of a few samples, whose predictions are stored in the file.
        """
        if self._ranks.is_rank_zero:
            self._begin_history()
            facts = checkpoint.describe_model(self._run, self._begun, self._ranks)
            write_model(self._run, task, weights, probe, facts)
