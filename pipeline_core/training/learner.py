"""Optimizer steps, data parallel over ranks, with gradient accumulation over micro-batches.

The mathematics of a step does not depend on the number of ranks. Every rank does the same:

1. All-reduce the counts of the loss terms: they depend on labels alone.
2. For each micro-batch of the rank's share, accumulate the gradients of the loss
   sum over terms of weight * sum / global count.
3. All-reduce the gradients: now they are exactly those of all samples of the step. In data
   parallel training, the all-reduce begins during the last backward pass.
4. Clip, step, average (EMA): all ranks have the same gradients, so all do the same.

A rank with an empty share skips 2 and takes part in all else. A clock times each phase.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from pipeline_core.config.sections import TrainOptions
from pipeline_core.distributed.ranks import Ranks
from pipeline_core.task import Task
from pipeline_core.training.gradients import FlatGradients
from pipeline_core.training.history import EpochTotals
from pipeline_core.training.loader import Step
from pipeline_core.training.micro_batches import MicroBatch
from pipeline_core.training.optimizers import LearningRate, make_optimizer
from pipeline_core.training.precision import Precision
from pipeline_core.training.profile import StepClock


class Learner:
    """Module, optimizer and EMA on one of several ranks, which keep identical weights.

    Args:
        task: Its module is on the device of `ranks`, with the same weights on all of them.
        options: Options of the training.
        ranks: Ranks that train.
        clock: Times the steps; None for no times.
        overlap: Whether gradients may be all-reduced within a backward pass, which must then have
            no collectives of its own.

    Attributes:
        rate: The learning rate; the caller steps it after each epoch.
        precision: Autocast and scale of the loss.
    """

    def __init__(
        self,
        task: Task,
        options: TrainOptions,
        ranks: Ranks,
        clock: StepClock | None = None,
        *,
        overlap: bool = False,
    ) -> None:
        self._objective, self._module, self._ranks = task.objective, task.module, ranks
        self._clock = clock or StepClock(ranks, runs=False, synchronizes=False)
        self._clip_norm, self._overlap = options.clip_norm, overlap
        self._average = None
        if options.ema_decay is not None:
            average = get_ema_multi_avg_fn(options.ema_decay)
            self._average = AveragedModel(self._module, multi_avg_fn=average)
        self._trainable = [p for p in self._module.parameters() if p.requires_grad]
        self._gradients = FlatGradients(self._trainable, ranks)
        scaled = options.precision == "16-mixed"
        self._optimizer = make_optimizer(options, self._module.parameters(), fused=not scaled)
        self.rate = LearningRate(self._optimizer, options.schedule, options.epochs)
        self.precision = Precision(options.precision, ranks.device)
        weights = list(task.objective.weights.values())
        self._weights = torch.tensor(weights, dtype=torch.float64, device=ranks.device)

    @property
    def evaluated(self) -> nn.Module:
        """The module to evaluate and to save: the exponential moving average if there is one."""
        return self._module if self._average is None else self._average.module

    def step(self, step: Step, totals: EpochTotals) -> tuple[Tensor, Tensor]:
        """Do one optimizer step and add it to the totals of the epoch.

        Returns:
            This rank's part of the loss, and the norm of the gradient of all ranks before clipping,
            float64 scalars on the device.
        """
        clock = self._clock
        clock.mark("compute")
        counts = self._ranks.all_reduce_sum(step.counts.to(self._ranks.device))
        clock.mark("communication")
        sums = torch.zeros_like(counts)
        self._gradients.zero()
        for number, piece in enumerate(step.pieces, 1):
            if self._overlap and number == len(step.pieces):
                self._gradients.overlap_sums()
            sums += self._backward(piece.to(self._ranks.device), counts)
        clock.finish_share()
        self._gradients.all_reduce_sum()
        clock.mark("communication")
        scaler = self.precision.scaler
        scaler.unscale_(self._optimizer)
        norm = self._gradients.compute_norm()
        if self._clip_norm is not None:
            self._gradients.clip(norm, self._clip_norm)
        scaler.step(self._optimizer)
        scaler.update()
        if self._average is not None:
            self._average.update_parameters(self._module)
        totals.add(step, sums, counts, norm)
        clock.mark("compute")
        return self._weigh(sums, counts), norm

    def is_finite(self) -> bool:
        """Return True if all weights and optimizer states are finite."""
        states = [x for s in self._optimizer.state.values() for x in s.values()]
        tensors = [*self._module.parameters(), *self.evaluated.parameters(), *states]
        finite = [x.isfinite().all().cpu() for x in tensors if isinstance(x, Tensor)]
        return bool(torch.stack(finite).all())

    def _weigh(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Return the loss from sums of terms over some samples, a scalar."""
        loss: Tensor = (self._weights * sums / counts.clamp(min=1)).sum()
        return loss

    def _backward(self, piece: MicroBatch, counts: Tensor) -> Tensor:
        """Add the gradients of one micro-batch; return the sums of its terms, (n_terms,)."""
        with self.precision.autocast():
            outputs = piece.predict(self._module)
        terms = self._objective.sums(outputs, piece.batch)
        sums = torch.stack([terms[name].double() for name in self._objective.weights])
        loss = self._weigh(sums, counts)
        # Not with respect to positions, on which the loss depends, too, through the forces.
        torch.autograd.backward(self.precision.scaler.scale(loss), inputs=self._trainable)
        return sums.detach()

    def train(self) -> None:
        """Put the module into training mode."""
        self._module.train()

    def state_dict(self) -> dict[str, Any]:
        """Return the content for `load_state_dict`, for bit-exact resume."""
        return {
            "module": self._module.state_dict(),
            "average": self._average.state_dict() if self._average is not None else None,
            "optimizer": self._optimizer.state_dict(),
            "rate": self.rate.state_dict(),
            "precision": self.precision.scaler.state_dict(),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self._module.load_state_dict(saved["module"])
        if self._average is not None:
            self._average.load_state_dict(saved["average"])
        self._optimizer.load_state_dict(saved["optimizer"])
        self.rate.load_state_dict(saved["rate"])
        self.precision.scaler.load_state_dict(saved["precision"])
