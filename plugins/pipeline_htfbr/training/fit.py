"""Training loop of gradient steps: records, checkpoints, early stopping, best weights.

As in the shared trainer, all ranks take the same decisions. Unlike there, only steps are taken
between two records, `train.record_every` epochs apart: a step takes about a millisecond.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import torch
from torch import Tensor

from pipeline_core.config.sections import PartitionOptions
from pipeline_core.distributed.ranks import Ranks, connect_ranks
from pipeline_core.project.run import Run
from pipeline_core.system.seeds import use_deterministic
from pipeline_core.task import Task, build_task
from pipeline_core.training.checkpoint import explain_misfit
from pipeline_core.training.divergence import Divergence
from pipeline_core.training.history import EpochTotals, Record, compute_means, make_record
from pipeline_core.training.out_of_memory import report_out_of_memory
from pipeline_core.training.session import Session
from pipeline_htfbr.model import Surface
from pipeline_htfbr.options import HTTrainOptions
from pipeline_htfbr.training.descent import Descent
from pipeline_htfbr.training.refusals import warn_if_underdetermined
from pipeline_htfbr.training.shares import Plan, Steps
from pipeline_htfbr.training.tabulated import Forward, Table, compute_half_domains, tabulate

_PROBE_POINTS: Final = 4
_SMALLER: Final = "lower graph.degree or model.rank, or take fewer points"


@dataclass(frozen=True)
class Method:
    """Functions of a method by gradient steps.

    Attributes:
        steps: Function of the points of a split, a plan and a device to the steps of each epoch.
        forward: Function of a surface to the function that computes f.
    """

    steps: Callable[[Table, Plan, torch.device], Steps]
    forward: Callable[[Surface], Forward]


def train_by_gradients(run: Run, method: Method) -> dict[str, Any]:
    """Fit the surface of a run on all ranks; resume from the checkpoint `run.state`.

    The loss is the mean squared error of (V - shift)/scale, plus `train.gradient_weight` times the
    mean squared error of its derivatives by each coordinate, in units of half the domain.

    Returns:
        Summary: epochs, best epoch and its loss, parameters, fitted numbers, ranks,
        device, seconds of all steps, and a warning if the parameters outnumber the numbers.

    Raises:
        ValueError: There is nothing to train on, files do not match, memory does not
            suffice, or the training diverges.
    """
    options = run.get_section("train", HTTrainOptions)
    with connect_ranks(run.device, run.state) as ranks, use_deterministic(options.deterministic):
        with report_out_of_memory(lambda: f"for tree and points of {run.experiment}; {_SMALLER}"):
            fit = GradientFit(run, build_task(run), options, ranks, method)
        return fit.fit()


class GradientFit:
    """State of one training on one rank.

    Args:
        run: The run.
        task: Newly built task, its module on the CPU.
        options: Options of the training.
        ranks: The ranks of the training.
        method: Functions of the method.

    Raises:
        ValueError: There is nothing to train on, or files do not match.
    """

    def __init__(
        self, run: Run, task: Task, options: HTTrainOptions, ranks: Ranks, method: Method
    ) -> None:
        assert isinstance(task.module, Surface)
        self._run, self._task, self._options, self._ranks = run, task, options, ranks
        self._module = task.module
        self._session = Session(run, task, options, ranks)
        self._descent = self._make_descent(method)
        wants_gradients = options.gradient_weight > 0
        train, val = tabulate(run, self._module, gradients=wants_gradients)
        if not len(train):
            raise ValueError(f"{run.experiment}: the split 'train' of its dataset is empty")
        self._n = {"train": len(train), "val": len(val)}
        self._plan = self._make_plan(len(train), options.batch_size)
        self._steps = method.steps(train, self._plan, ranks.device)
        self._evaluated = {"train": self._take_share(train), "val": self._take_share(val)}
        self._units = self._make_units()
        self._epoch = 0

    def fit(self) -> dict[str, Any]:
        """Train to the end; write the history and, on rank 0, the best model."""
        warning, session = None, self._session
        summary = session.summarize()
        if self._ranks.is_rank_zero:
            warning = warn_if_underdetermined(self._count_numbers(), summary["parameters"])
        split = "val" if self._n["val"] else "train"
        session.run(self._train_epochs, split, np.arange(min(_PROBE_POINTS, self._n[split])))
        return {
            **session.summarize(),
            "fitted_numbers": self._count_numbers(),
            "seconds": sum(record["seconds"] for record in session.progress.history),
            **({"warning": warning} if warning else {}),
        }

    def _make_descent(self, method: Method) -> Descent:
        saved = self._session.start()
        forward = method.forward(self._module)
        descent = Descent(self._module, forward, self._options, self._ranks)
        if saved is not None:
            with explain_misfit(self._run.state / "last.pt"):
                descent.load_state_dict(saved["learner"])
        return descent

    def _make_plan(self, n_points: int, batch_size: int | Literal["all"]) -> Plan:
        capacity = self._run.get_section("partition", PartitionOptions).capacity
        return Plan(
            n_points=n_points,
            batch_size=batch_size,
            capacity=max(1, int(capacity or n_points)),
            seed=self._run.seed,
            rank=self._ranks.rank,
            n_ranks=self._ranks.size,
        )

    def _take_share(self, table: Table) -> list[Table]:
        """Return the points of a split that this rank evaluates, on its device."""
        (part,) = self._make_plan(len(table), "all").plan_epoch(0)
        numbers = map(torch.from_numpy, part.batches)
        return [table.select(points).to(self._ranks.device) for points in numbers]

    def _make_units(self) -> list[Tensor]:
        """Return the factors from residuals to eV, and to eV per unit of each coordinate."""
        scale = self._module.scale
        units = [scale, scale / compute_half_domains(self._module).to(scale.device)[:, None]]
        return units[: len(self._descent.weights)]

    def _count_numbers(self) -> int:
        n_each = 1 + len(self._module.leaves) * (len(self._descent.weights) - 1)
        return self._n["train"] * n_each

    def _train_epochs(self) -> None:
        """Train to the next record."""
        every, first = self._options.record_every, self._session.progress.epoch
        last = min((first // every + 1) * every, self._options.epochs) - 1
        descent = self._descent
        with report_out_of_memory(self._describe_pass):
            begin = time.perf_counter()
            norms = self._take_steps(range(first, last + 1))
            if self._ranks.device.type == "cuda":
                torch.cuda.synchronize()
            record = self._make_record(last + 1, norms, time.perf_counter() - begin)
        self._session.end_epoch(
            record, self._module, descent.rate, lambda: {"learner": descent.state_dict()}
        )

    def _take_steps(self, epochs: range) -> Tensor:
        """Take the steps of epochs; return the norms of the gradients in the last one."""
        for self._epoch in epochs[:-1]:
            self._ranks.report(f"epoch {self._epoch + 1}")
            for step in self._steps(self._epoch):
                self._descent.step(*step)
            self._descent.rate.step(math.nan)
        self._epoch = epochs[-1]
        self._ranks.report(f"epoch {self._epoch + 1}")
        steps = self._steps(self._epoch)
        return torch.stack([self._descent.step(*step, with_norm=True) for step in steps])

    def _describe_pass(self) -> str:
        """Return the position of this rank, and ways to reduce its memory."""
        n_points = self._plan.largest_pass
        pieces = f"set partition.capacity below {n_points}, with the same result"
        words = [
            f"in epoch {self._epoch + 1} on rank {self._ranks.rank}, whose passes hold up to "
            f"{n_points} points",
            _SMALLER if n_points == 1 else f"{pieces}, or {_SMALLER}",
        ]
        return "; ".join([*words, *self._session.describe_kept()])

    def _make_record(self, epoch: int, norms: Tensor, seconds: float) -> Record:
        """Return the record of an epoch: losses after it, times since the previous record.

        Unlike in the shared trainer the training loss belongs to the weights that are validated, so
        that the two can be compared.
        """
        weights, progress = self._descent.weights, self._session.progress
        squares, _ = self._sum_errors("train")
        finite = norms[norms.isfinite()]
        mean_load, largest_load = self._plan.measure_balance()
        totals = EpochTotals(
            sums=squares,
            counts=self._count_labels("train"),
            norms=torch.stack([finite.sum(), finite.new_tensor(len(finite))]),
            steps=len(norms),
            samples=(epoch - progress.epoch) * self._n["train"],
            mean_load=mean_load,
            largest_load=largest_load,
            seconds=seconds,
        )
        record = make_record(epoch, self._descent.rate.value, weights, totals, self._validate())
        losses = [record[split]["loss"] for split in ("train", "val") if record[split]]
        if not (all(map(math.isfinite, losses)) and self._descent.is_finite()):
            seen = (
                f"the losses ({', '.join(map(str, losses))}) or the optimizer's state are not "
                "finite after its last step"
            )
            seen += f", which they were after epoch {progress.epoch}" if progress.epoch else ""
            self._session.refuse(Divergence(epoch, seen))
        return record

    def _validate(self) -> dict[str, Any]:
        if not self._n["val"]:
            return {}
        squares, absolute = self._sum_errors("val")
        weights, counts = self._descent.weights, self._count_labels("val")
        mae = zip(weights, (absolute / counts).tolist(), strict=True)
        return {
            "val": compute_means(weights, squares.tolist(), counts.tolist()),
            "mae": dict(mae),
        }

    def _sum_errors(self, split: str) -> tuple[Tensor, Tensor]:
        return self._descent.sum_errors(self._evaluated[split], self._units)

    def _count_labels(self, split: str) -> Tensor:
        counts = [self._n[split], self._n[split] * len(self._module.leaves)]
        return torch.tensor(counts[: len(self._descent.weights)], dtype=torch.float64)
